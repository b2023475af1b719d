"""Images in a conversation: found, refused where nobody sees them, and as the journal has them."""

import base64
import binascii
import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ajet_swarm.common.text import one_line

Messages = list[dict[str, Any]]

_DATA: Final = re.compile(r"data:(?:image/)?(?P<kind>[\w.+-]{1,20})?[^,]{0,200},", re.IGNORECASE)
MOST_WORDS: Final = 4
"""Images of one message that are named one by one."""


def without_images(messages: Messages) -> Messages | None:
    """The messages with a short text in place of each image; None when they hold no image.

    In place of an image stands `{"type": "image", "text": "[image 1.2 MB png]"}`; where it came as
    data, with its `bytes` (a number) and the first 16 digits of its `sha256`.
    """
    if not any(isinstance(one.get("content"), list) for one in messages):
        return None
    found = False
    shown: Messages = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and any(map(_is_image, content)):
            found = True
            parts = [_described(part) if _is_image(part) else part for part in content]
            shown.append({**message, "content": parts})
        else:
            shown.append(message)
    return shown if found else None


def image_words(shown: Messages | None) -> tuple[str, ...]:
    """The texts of the images in the last message of the user, from what `without_images` gives."""
    if shown is None:
        return ()
    users = [one for one in shown if one.get("role") == "user"]
    content = users[-1].get("content") if users else None
    parts = content if isinstance(content, list) else []
    words = [str(part["text"]) for part in parts if _is_image(part)]
    more = len(words) - MOST_WORDS
    return (*words[:MOST_WORDS], f"[{more} more images]") if more > 0 else tuple(words)


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a part of a message is an image, or stands where one was."""
    contents = (message.get("content") for message in messages)
    return any(any(map(_is_image, one)) for one in contents if isinstance(one, list))


def _is_image(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    if kind is None:
        return "image_url" in part
    return isinstance(kind, str) and (kind.startswith("image") or kind == "input_image")


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str):
        return {"type": "image", "text": "[image]"}
    if (head := _DATA.match(url)) is None:
        return {"type": "image", "text": f"[image{_from(url)}]"}
    data = _decoded(url[head.end() :], ";base64," in head[0].lower())
    kind = one_line(head["kind"] or "", 20).lower()
    words = " ".join(filter(None, ("image", _size(len(data)), kind)))
    digest = hashlib.sha256(data).hexdigest()[:16]
    return {"type": "image", "text": f"[{words}]", "bytes": len(data), "sha256": digest}


def _decoded(text: str, encoded: bool) -> bytes:
    if encoded:
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(text)
    return text.encode("utf-8", "surrogatepass")


def _from(url: str) -> str:
    """Where an image is fetched, without a query: it may hold a key."""
    try:
        parts = urlsplit(url[:2000])
        host = parts.hostname
    except ValueError:
        return ""
    return f" from {one_line(host + parts.path, 80)}" if host else ""


def _size(count: int) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
