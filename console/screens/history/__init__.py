"""History: the engine runs, two of them compared, the screens as of the time of one."""
