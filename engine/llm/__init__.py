"""The three request/answer forms of an episode's LLM call."""
