"""Files of a model: checks of a folder, and downloads from Hugging Face; without torch."""
