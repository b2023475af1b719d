"""One run over a dataset: row order, pace, progress and results."""
