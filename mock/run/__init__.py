"""One run over a dataset."""
