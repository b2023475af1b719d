"""Stand-ins that several tests use."""
