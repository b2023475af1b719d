"""Whether the watch finds exploited rewards."""
