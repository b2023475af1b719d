"""One group's life, from claim to last reward."""
