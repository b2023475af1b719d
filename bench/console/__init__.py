"""What one operator notices of the console's speed, measured at a terminal."""
