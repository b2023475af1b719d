"""A chat application whose policy becomes enthusiastic."""
