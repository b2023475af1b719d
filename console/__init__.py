"""The operator's seat: the terminal console, the command line and the supervisor."""
