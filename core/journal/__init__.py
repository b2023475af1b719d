"""SQLite journal: writer thread, batches, fsync thread, reader, paging."""
