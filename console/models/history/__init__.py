"""Engine runs in words, two of them compared, the way to the past of one."""
