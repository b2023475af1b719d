"""Recognition of held-out prompts: requests that repeat one are answered and never trained on."""

import re
import unicodedata
from collections.abc import Iterable

_NO_WORD = re.compile(r"[^\w+*/=<>%-]+")


def normalised(text: str) -> str:
    """Return `text` without differences in case, white space and punctuation.

    Signs of arithmetic stay, so that `7 + 8` and `7 - 8` differ.
    """
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())


class HeldOutPrompts:
    """The held-out prompts of all servers, by their normalised text."""

    def __init__(self) -> None:
        self._by_server: dict[str, frozenset[str]] = {}
        self._all: frozenset[str] = frozenset()

    def replace(self, server: str, prompts: Iterable[str]) -> None:
        """Set the held-out prompts of one server."""
        self._by_server[server] = frozenset(map(normalised, prompts))
        self._all = frozenset().union(*self._by_server.values())

    def matches(self, text: str) -> bool:
        """Return whether a user's text is a held-out prompt of any server.

        A text that is held out for one server is trained on nowhere: servers may share weights.
        """
        return bool(self._all) and normalised(text) in self._all
