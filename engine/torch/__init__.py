"""A policy of any size: a causal language model of transformers, trained with LoRA or in full."""
