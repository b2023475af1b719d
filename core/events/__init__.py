"""Events: small frozen records of what happened, from which all state is computed.

One module per subject; `core.state` has modules of the same names. Every subclass of `Event` is a
kind of event; there is no other list.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

import msgspec

from core.events.base import Event, GroupEvent
from core.events.group import *
from core.events.mock import *
from core.events.progress import *
from core.events.proxy import *
from core.events.rating import *
from core.events.rewards import *
from core.events.runs import *
from core.events.server import *
from core.events.weights import *


def _kinds(base: type[Event]) -> Iterator[type[Event]]:
    """Yield every event class below `base` that is not itself a base."""
    for kind in base.__subclasses__():
        if kind.__subclasses__():
            yield from _kinds(kind)
        else:
            yield kind


EVENT_KINDS: tuple[type[Event], ...] = tuple(_kinds(Event))
"""All event classes."""

if TYPE_CHECKING:
    AnyEvent: TypeAlias = Event
else:
    AnyEvent = Union[EVENT_KINDS]  # noqa: UP007  made at run time; msgspec decodes by it

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON."""
    return _encoder.encode(event)


def encode_lines(events: Sequence[Event]) -> bytes:
    """Return the events as lines of JSON, each ended by a line feed."""
    return _encoder.encode_lines(events)


def decode(data: bytes | str) -> AnyEvent:
    """Return the event in one line of JSON.

    Raises:
        msgspec.MsgspecError: This version does not have such an event; names the field.
    """
    return _decoder.decode(data)
