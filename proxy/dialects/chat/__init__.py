"""Chat and legacy completions."""
