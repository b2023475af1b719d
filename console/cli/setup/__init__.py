"""`setup`: questions about application, dataset, rewards, engine, rating; their settings."""
