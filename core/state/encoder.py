"""JSON of a whole state, most of it encoded ahead."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from core.state import State

_encode = msgspec.json.encode
_PLACE: Any = msgspec.Raw(b"<groups>")
_FIELD = b'"groups":<groups>'
"""Stands for the groups; no JSON string contains it, because its quotes would be escaped."""


class StateEncoder:
    """Encodes a state of hundreds of groups without blocking the event loop for long.

    All at once take up to 10 ms. `encode_ahead` encodes one closed group per call; `encode` then
    encodes only the rest.
    """

    def __init__(self) -> None:
        self._waiting: list[str] | None = None
        """Ids of the groups to encode ahead, the next one last; None before the first call."""
        self._encoded: dict[str, bytes] = {}

    def encode_ahead(self, state: State) -> None:
        """Encode one closed group."""
        if self._waiting is None:
            self._waiting = [key for key, group in state.groups.items() if not group.open]
        while self._waiting:
            key = self._waiting.pop()
            group = state.groups.get(key)
            if group is not None and not group.leases:  # leases end without an event of the group
                self._encoded[key] = _encode(group)
                return

    def forget(self, group_id: str) -> None:
        """Note a change of a group."""
        self._encoded.pop(group_id, None)

    def encode(self, state: State) -> tuple[bytes, ...]:
        """Return the JSON of the state in parts, and begin again.

        Parts, because the memory of a JSON of several MB alone takes milliseconds to allocate.
        """
        encoded, self._waiting, self._encoded = self._encoded, None, {}
        return tuple(json_parts(state, encoded))


def json_parts(
    state: State, encoded: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[bytes]:
    """Yield the JSON of a state in parts, each encoded when it is needed.

    Args:
        state: The state; does not change meanwhile.
        encoded: JSON of groups by id, as far as it was encoded before.
    """
    rest = _encode(msgspec.structs.replace(state, groups=_PLACE))
    before, after = rest.split(_FIELD)
    yield before
    yield b'"groups":'
    mark = b"{"
    for key, group in state.groups.items():
        yield mark
        yield _encode(key)
        yield b":"
        yield encoded.get(key) or _encode(group)
        mark = b","
    yield b"}" if state.groups else b"{}"
    yield after
