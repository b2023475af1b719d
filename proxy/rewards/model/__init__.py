"""`rewards.yaml`: reading, editing, assembling, reloading."""
