"""Pure arithmetic: rating -> rewards, rewards -> advantages, rater agreement."""
