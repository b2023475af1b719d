"""Division of an export into files, by a hash of the prompt.

Equal prompts are always in the same file, and a prompt stays in its file when the journal grows.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import content_text

NAMES = ("train", "test")
"""Names of the files of `0.9/0.1`."""
THREE_NAMES = ("train", "validation", "test")


class Split:
    """Names of the files and their shares.

    Args:
        shares: Share of each file, in the order of the names; their sum is 1.
    """

    def __init__(self, shares: Sequence[float] = (1.0,)) -> None:
        self.names = THREE_NAMES if len(shares) == 3 else NAMES[: len(shares)]
        self.shares = tuple(shares)

    def __str__(self) -> str:
        return "/".join(f"{share:g}" for share in self.shares)

    def side(self, prompt: Sequence[Mapping[str, Any]]) -> str:
        """Return the name of the file of a prompt.

        The texts of its user messages count, without differences in case and white space: prompts
        that differ only in the system message are in the same file.
        """
        if len(self.shares) == 1:
            return self.names[0]
        texts = [
            " ".join(content_text(message.get("content")).casefold().split())
            for message in prompt
            if message.get("role") == "user"
        ]
        digest = hashlib.blake2b("\n".join(texts).encode(errors="replace"), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2.0**64
        limit = 0.0
        for name, share in zip(self.names, self.shares, strict=True):
            limit += share
            if place < limit:
                return name
        return self.names[-1]


def parse_split(text: str) -> Split:
    """Return the split in `0.9/0.1` (train, test) or `0.8/0.1/0.1` (train, validation, test).

    Raises:
        UsageError: It is none.
    """
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        shares = []
    fits = len(shares) in (2, 3) and all(0.0 < share < 1.0 for share in shares)
    if not fits or not math.isclose(math.fsum(shares), 1.0, abs_tol=1e-6):
        raise UsageError(
            "not a split",
            f"--split {text[:40]}",
            "Give two or three shares with the sum 1, such as 0.9/0.1",
        )
    return Split(shares)
