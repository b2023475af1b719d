"""Unique ids; not suitable as secrets."""

import os
from random import Random

_random = Random()
"""Seeded by the system once; asking it for each id would cost more than the id itself."""
_bits = _random.getrandbits
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)  # else both processes make the same ids


def hex_id(size: int) -> str:
    """Return `size` random bytes as hex digits."""
    return f"{_bits(8 * size):0{2 * size}x}"
