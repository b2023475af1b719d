"""Network, gradients and GRPO in numpy."""
