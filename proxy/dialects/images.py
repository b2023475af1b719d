"""Images in a conversation: find them, and replace them by short labels for the journal."""

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
MOST_LISTED: Final = 4
"""Images of one message that are listed one by one."""


def without_images(messages: Messages) -> Messages | None:
    """Return the messages with a label in place of each image; None when they hold no image.

    A label is `{"type": "image", "text": "[image 1.2 MB png]"}`; for an image sent as data it also
    has the size in `bytes` and the first 16 hex digits of its `sha256`.
    """
    if not any(isinstance(message.get("content"), list) for message in messages):
        return None
    has_image = False
    described: Messages = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list) and any(map(_is_image, content)):
            has_image = True
            parts = [_described(part) if _is_image(part) else part for part in content]
            described.append({**message, "content": parts})
        else:
            described.append(message)
    return described if has_image else None


def image_labels(described: Messages | None) -> tuple[str, ...]:
    """Return the labels of the images in the last user message.

    Args:
        described: The messages that `without_images` returned.
    """
    if described is None:
        return ()
    user_messages = [message for message in described if message.get("role") == "user"]
    content = user_messages[-1].get("content") if user_messages else None
    parts = content if isinstance(content, list) else []
    labels = [str(part["text"]) for part in parts if _is_image(part)]
    unlisted = len(labels) - MOST_LISTED
    return (*labels[:MOST_LISTED], f"[{unlisted} more images]") if unlisted > 0 else tuple(labels)


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a part of a message is an image or an image's label."""
    contents = (message.get("content") for message in messages)
    return any(any(map(_is_image, content)) for content in contents if isinstance(content, list))


def _is_image(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    if kind is None:
        return "image_url" in part
    return isinstance(kind, str) and (kind.startswith("image") or kind == "input_image")


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        return {"type": "image", "text": "[image]"}
    if (head := _DATA.match(url)) is None:
        return {"type": "image", "text": f"[image{_source_label(url)}]"}
    data = _decoded(url[head.end() :], ";base64," in head[0].lower())
    image_type = one_line(head["kind"] or "", 20).lower()
    label = " ".join(filter(None, ("image", _size(len(data)), image_type)))
    digest = hashlib.sha256(data).hexdigest()[:16]
    return {"type": "image", "text": f"[{label}]", "bytes": len(data), "sha256": digest}


def _decoded(text: str, encoded: bool) -> bytes:
    if encoded:
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(text)
    return text.encode("utf-8", "surrogatepass")


def _source_label(url: str) -> str:
    """Return " from HOST/PATH" of an image's URL, without its query, which may hold a key."""
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
