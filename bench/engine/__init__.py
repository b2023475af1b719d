"""Speed of the embedded engine beside other versions of the same policy."""
