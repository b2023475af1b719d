"""The fake vLLM: one request becomes N episodes, the best answer goes back."""
