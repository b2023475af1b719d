"""The kinds of parts that come with the program: a module each, with a `KIND`."""
