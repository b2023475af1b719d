"""Tracker sinks: receivers of the figures of each step, such as TensorBoard event files."""
