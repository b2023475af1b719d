"""Nine players, one policy for the werewolves and the seer, a static model for the others."""
