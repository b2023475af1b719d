"""Episodes of one server: order of the claims, claims, deadlines, returns; begin with `claim`."""
