"""Small sums, rewarded by the number of the dataset."""
