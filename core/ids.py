"""Names that nobody else has; not for secrets."""

from random import Random

_bits = Random().getrandbits
"""Seeded by the system once: to ask it for each name costs more than the name."""


def hex_id(size: int) -> str:
    """`size` random bytes as hex digits."""
    return f"{_bits(8 * size):0{2 * size}x}"
