"""The texts of a group in full, read from its events."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import msgspec

from ajet_swarm.common.text import content_text
from core.events import CandidateAnswered, Event, GroupOpened, singles
from core.state import Group


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """Uncut texts of one candidate."""

    text: str
    reasoning: str
    tool_calls: str


def whole_texts(events: Iterable[Event]) -> tuple[str, dict[int, WholeAnswer]]:
    """Return the whole query and the whole answers by index, from the events of one group."""
    query, answers = "", {}
    for event in chain.from_iterable(map(singles, events)):
        if isinstance(event, GroupOpened):
            query = event.shown_query
        elif isinstance(event, CandidateAnswered):
            message = event.message
            calls = message.get("tool_calls")
            answers[event.index] = WholeAnswer(
                content_text(message.get("content")),
                content_text(message.get("reasoning") or message.get("reasoning_content")),
                msgspec.json.encode(calls).decode() if calls else "",
            )
    return query, answers


def copy_text(group: Group, index: int, whole: str = "") -> str:
    """Return the text that `copy` puts on the clipboard: one candidate's answer, unformatted."""
    if not 0 <= index < len(group.candidates):
        return ""
    one = group.candidates[index]
    return whole or one.text or one.tool_calls
