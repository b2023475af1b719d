"""Engine runs as lines and curves."""
