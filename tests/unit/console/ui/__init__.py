"""The parts from which screens are built."""
