"""Shuffled orders of any length without a list: each position is computed when it is needed."""

import hashlib
from collections.abc import Iterator, Sequence

_ROUNDS = 6
_WORD = (1 << 64) - 1


class Shuffle:
    """A permutation of 0 to `size` - 1: a Feistel network over the next power of four, iterated
    until the value is in range.

    Args:
        size: Number of positions.
        seed: Equal seeds give equal orders.
    """

    def __init__(self, size: int, seed: str) -> None:
        self._size = size
        self._half = max(1, ((max(size, 2) - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.blake2b(seed.encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(digest[at : at + 8], "big") for at in range(0, len(digest), 8)]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self._size:
            raise IndexError(place)
        while True:
            left, right = place >> self._half, place & self._mask
            for key in self._keys:
                left, right = right, left ^ (_mixed(right, key) & self._mask)
            place = left << self._half | right
            if place < self._size:
                return place


def order(blocks: Sequence[int], seed: str) -> Iterator[int]:
    """Yield all positions in a seeded order: shuffled blocks, each shuffled within itself.

    Args:
        blocks: Lengths of the blocks; a single block is shuffled as a whole.
        seed: Equal seeds give equal orders.
    """
    starts = [0]
    for length in blocks:
        starts.append(starts[-1] + length)
    for block in map(Shuffle(len(blocks), f"{seed}:blocks").__getitem__, range(len(blocks))):
        within = Shuffle(blocks[block], f"{seed}:{block}")
        yield from (starts[block] + within[place] for place in range(blocks[block]))


def _mixed(value: int, key: int) -> int:
    value = (value + key) & _WORD
    value = ((value ^ value >> 33) * 0xFF51AFD7ED558CCD) & _WORD
    value = ((value ^ value >> 33) * 0xC4CEB9FE1A85EC53) & _WORD
    return value ^ value >> 33
