"""What every module of the library shares: errors, tasks, text, urls."""
