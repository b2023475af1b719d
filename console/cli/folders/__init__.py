"""Commands that write or run folders of an application."""
