"""NanoGPT-sized: network, gradients, GRPO."""
