"""Lines and charts about the progress of a policy."""
