"""Texts of models and users in the results of tools: left out, or marked as untrusted."""

from typing import Any

from ajet_swarm.common.text import plain
from console.json_view import TEXTS

MOST = 20_000
"""Maximum number of characters of one text."""


class ContentPolicy:
    """Decides what becomes of the texts of models and users.

    Args:
        shown: Whether results contain them, marked as untrusted.
    """

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown

    def mark(self, text: str | None) -> dict[str, Any] | None:
        """Return a text of a model or a user without control characters, marked as untrusted."""
        if text is None:
            return None
        cut = len(text) > MOST
        marked: dict[str, Any] = {"untrusted_text": plain(text[:MOST])}
        return {**marked, "characters": len(text)} if cut else marked

    def view(self, data: Any) -> Any:
        """Return data of `json_view` with its texts marked; without them if they are not shown."""
        if isinstance(data, dict):
            return {
                name: self.marked(value) if _is_text(name, value) else self.view(value)
                for name, value in data.items()
                if not _is_text(name, value) or (self.shown and value)
            }
        return [self.view(item) for item in data] if isinstance(data, list) else data

    def marked(self, value: Any) -> Any:
        """Return a value of which each text is marked as untrusted."""
        if isinstance(value, str):
            return self.mark(value)
        if isinstance(value, dict):
            return {key: self.marked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.marked(item) for item in value]
        return value


def _is_text(name: str, value: Any) -> bool:
    return name in TEXTS and isinstance(value, str | dict | list | tuple)
