"""Small sums, rewarded by the dataset's number."""
