"""The texts of a group in full, read from its events."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import msgspec

from ajet_swarm.common.text import content_text
from core.events import CandidateAnswered, Event, GroupOpened, singles
from core.state import Group


@dataclass(frozen=True, slots=True)
class Whole:
    """Texts of one candidate that are not cut."""

    text: str
    reasoning: str
    tool_calls: str


def whole_texts(events: Iterable[Event]) -> tuple[str, dict[int, Whole]]:
    """The whole query and the whole answers by index, from the events of one group."""
    query, found = "", {}
    for event in chain.from_iterable(map(singles, events)):
        if isinstance(event, GroupOpened):
            query = event.shown_query
        elif isinstance(event, CandidateAnswered):
            said = event.message
            calls = said.get("tool_calls")
            found[event.index] = Whole(
                content_text(said.get("content")),
                content_text(said.get("reasoning") or said.get("reasoning_content")),
                msgspec.json.encode(calls).decode() if calls else "",
            )
    return query, found


def copy_text(group: Group, index: int, whole: str = "") -> str:
    """What `copy` puts on the clipboard: one candidate's answer, as it was said."""
    if not 0 <= index < len(group.candidates):
        return ""
    one = group.candidates[index]
    return whole or one.text or one.tool_calls
