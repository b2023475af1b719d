"""The texts of a group in full, read from its events."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text, one_line
from console.session.app_state import Session
from console.session.command_plans import consequences
from core.events import CandidatesAnswered, Event, GroupOpened
from core.state import Group


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """Uncut texts of one candidate."""

    text: str
    reasoning: str
    tool_calls: str


def whole_texts(events: Iterable[Event]) -> tuple[str, dict[int, WholeAnswer]]:
    """Return the whole query and the whole answers by index, from the events of one group."""
    query = ""
    answers: dict[int, WholeAnswer] = {}
    for event in events:
        if isinstance(event, GroupOpened):
            query = event.shown_query
        elif isinstance(event, CandidatesAnswered):
            answers |= {answered.index: _whole(answered.message) for answered in event.candidates}
    return query, answers


def _whole(message: Mapping[str, Any]) -> WholeAnswer:
    calls = message.get("tool_calls")
    return WholeAnswer(
        content_text(message.get("content")),
        content_text(message.get("reasoning") or message.get("reasoning_content")),
        msgspec.json.encode(calls).decode() if calls else "",
    )


def copy_text(group: Group, index: int, whole: str = "") -> str:
    """Return the text that `copy` puts on the clipboard: one candidate's answer, unformatted."""
    if not 0 <= index < len(group.candidates):
        return ""
    candidate = group.candidates[index]
    return whole or candidate.text or candidate.tool_calls


def abort_question(session: Session, group: Group, details: str) -> str:
    """Return the body of the question before the abort of one group.

    Args:
        session: The session.
        group: The group.
        details: What its user received; may be empty.
    """
    lost = consequences(session, "group.abort", group_id=group.group_id)
    return "\n".join(filter(None, [f"“{one_line(group.query, 60)}”", lost, details]))


def curl_of(events: Iterable[Event], url: str) -> str:
    """Return a shell command that repeats a group's request; empty when its body is unknown.

    The command takes the API key from the environment, because no key is stored.

    Args:
        events: The events of the group.
        url: URL of the proxy.
    """
    for event in events:
        if isinstance(event, GroupOpened):
            body = dict(event.body)
            if event.model:
                body["model"] = event.model
            if event.stream:
                body["stream"] = True
            data = msgspec.json.encode(body).decode()
            return (
                f"curl {shlex.quote(f'{url}/v1/chat/completions')} \\\n"
                "  -H 'content-type: application/json' \\\n"
                '  -H "authorization: Bearer ${OPENAI_API_KEY:-none}" \\\n'
                f"  -d {shlex.quote(data)}"
            )
    return ""
