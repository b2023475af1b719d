"""Export of ranked groups from the journal to files that trainers and other programs read."""
