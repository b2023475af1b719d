"""The user's side of a conversation: scripted turns or a persona played by a model."""
