"""Output items that clients refer to by id instead of sending them back. No I/O.

The AI SDK's default provider does so unless it is told `store: false`: the second request of a tool
loop then holds nothing but the ids of what was said and called. Responses themselves are not kept.
"""

import contextlib
from collections import OrderedDict
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

MOST_BYTES = 16 << 20


class ResponseStore:
    """The items told last, up to a number of bytes; those referred to stay longest."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        """Start empty.

        Args:
            most: Bytes of JSON kept at most.
        """
        self._most = most
        self._bytes = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()

    def put(self, item: dict[str, Any]) -> None:
        """Keep an item that has an `id`; the oldest make room."""
        told = _encode(item)
        self._bytes += len(told) - len(self._items.pop(item["id"], b""))
        self._items[item["id"]] = told
        while self._bytes > self._most:
            _, oldest = self._items.popitem(last=False)
            self._bytes -= len(oldest)

    def get(self, item_id: Any) -> dict[str, Any] | None:
        """The item of that id; None if it is not here or not any more.

        Large requests are read in threads: unlike the rest, this may be called in any.
        """
        told = self._items.get(item_id) if isinstance(item_id, str) else None
        if told is None:
            return None
        with contextlib.suppress(KeyError):  # it made room meanwhile
            self._items.move_to_end(item_id)
        found: dict[str, Any] = _decode(told)
        return found
