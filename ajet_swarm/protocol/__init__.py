"""What is on the wire, jobs, errors, tasks; no I/O."""
