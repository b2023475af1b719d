"""The console on a pseudo terminal."""
