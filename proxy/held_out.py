"""Recognition of held-out prompts: requests that repeat one are answered and never trained on."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ajet_swarm.common.text import content_text
from core.events import ProbePrompt

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

    def replace(self, server: str, prompts: Iterable[ProbePrompt]) -> None:
        """Set the held-out prompts of one server."""
        self._by_server[server] = frozenset(map(key_of, prompts))
        self._all = frozenset().union(*self._by_server.values())

    def matches(self, query: str, messages: Sequence[Mapping[str, Any]] = ()) -> bool:
        """Return whether a request repeats a held-out prompt of any server.

        A prompt that is held out for one server is trained on nowhere: servers may share weights.

        Args:
            query: Text of the last user message.
            messages: The whole conversation. A prompt with earlier messages matches only a request
                with the same ones; a prompt without them matches in any conversation.
        """
        if not self._all:
            return False
        last = normalised(query)
        return last in self._all or (
            len(messages) > 1 and f"{_joined(messages[:-1])}\n{last}" in self._all
        )


def key_of(prompt: ProbePrompt) -> str:
    """Return the text by which a request is recognised as this prompt."""
    last = normalised(prompt.prompt)
    return f"{_joined(prompt.before)}\n{last}" if prompt.before else last


def _joined(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(normalised(content_text(message.get("content"))) for message in messages)
