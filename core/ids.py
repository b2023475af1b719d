"""Unique ids; not suitable as secrets."""

from random import Random

_bits = Random().getrandbits
"""Seeded by the system once; asking it for each id would cost more than the id itself."""


def hex_id(size: int) -> str:
    """Return `size` random bytes as hex digits."""
    return f"{_bits(8 * size):0{2 * size}x}"
