"""Control API, its client, command handlers."""
