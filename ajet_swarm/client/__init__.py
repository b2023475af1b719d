"""What scripts use: async client, its sync twin, episodes, throttle, several servers."""
