"""`replay`: shows a journal in the console instead of a running proxy."""
