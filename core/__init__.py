"""What all parts say to each other: events, state, commands, settings, journal, tasks."""
