"""Store of output items, to which clients refer by id instead of sending them back. No I/O.

The AI SDK's default provider does so unless configured with `store: false`: the second request of a
tool loop then holds only the ids of messages and calls. Responses themselves are not stored.
"""

import contextlib
from collections import OrderedDict
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

MOST_BYTES = 16 << 20


class ResponseStore:
    """The most recently used output items, up to a total size in bytes."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        """Start empty.

        Args:
            max_bytes: Limit of the items' total size, in bytes of JSON.
        """
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()

    def put(self, item: dict[str, Any]) -> None:
        """Store an item that has an `id`; drop the least recently used ones beyond the limit."""
        encoded = _encode(item)
        self._bytes += len(encoded) - len(self._items.pop(item["id"], b""))
        self._items[item["id"]] = encoded
        while self._bytes > self._max_bytes:
            _, oldest = self._items.popitem(last=False)
            self._bytes -= len(oldest)

    def get(self, item_id: Any) -> dict[str, Any] | None:
        """Return the item with that id; None if it is unknown or dropped.

        Thread-safe, unlike `put`, because large requests are parsed in threads.
        """
        encoded = self._items.get(item_id) if isinstance(item_id, str) else None
        if encoded is None:
            return None
        with contextlib.suppress(KeyError):  # dropped in the meantime
            self._items.move_to_end(item_id)
        item: dict[str, Any] = _decode(encoded)
        return item
