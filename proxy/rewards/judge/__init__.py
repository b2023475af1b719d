"""LLM as a part."""
