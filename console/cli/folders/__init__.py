"""Commands that write or run an application's folder."""
