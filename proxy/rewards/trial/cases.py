"""Where groups to score anew come from: a journal, or the lines of a file."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import closest, content_text, one_line
from core.events import (
    AnyEvent,
    CandidateAnswered,
    CandidateFailed,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    RatingUndone,
    singles,
)
from core.journal import storage
from core.journal.history import END, ReadableJournal
from proxy.rewards.source import Answer, GroupContext
from proxy.rewards.trial.replay import Case

PAGE = 16
"""Groups read at a time."""
LINE_CAP = 8 << 20
"""Bytes of a line of a file."""
FIELDS = ("query", "answers", "reference", "messages", "metadata", "tools", "rewards", "id")
_KNOWN = f"A line has {', '.join(FIELDS)}; query and answers are needed"


# --- the journal ------------------------------------------------------------------------------


def newest(journal: ReadableJournal, most: int) -> list[str]:
    """Ids of the newest groups that can be re-scored, at most so many, oldest first."""
    found: list[str] = []
    before = END
    with journal.reading() as db:
        while len(found) < most:
            rows = db.execute(
                "select id, opened_seq from groups where opened_seq<? order by opened_seq desc"
                " limit ?",
                (before, PAGE),
            ).fetchall()
            if not rows:
                break
            before = rows[-1][1]
            found += [str(row[0]) for row in rows if _case(db, str(row[0]), False) is not None]
    return found[:most][::-1]


def found_id(journal: ReadableJournal, prefix: str) -> str:
    """The one group whose id begins so.

    Raises:
        AjetError: there is none, or there are several.
    """
    with journal.reading() as db:
        rows = db.execute(
            "select id from groups where id=? or substr(id, 1, ?)=? order by id=? desc limit 2",
            (prefix, len(prefix), prefix, prefix),
        ).fetchall()
    ids = [str(row[0]) for row in rows]
    if prefix in ids or len(ids) == 1:
        return ids[0]
    what = "several groups begin" if ids else "no group begins"
    raise AjetError(f"{what} with `{one_line(prefix, 40)}`", todo="Give the group's whole id")


def pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids, a page at a time."""
    for first in range(0, len(ids), PAGE):
        yield ids[first : first + PAGE]


def cases_of(journal: ReadableJournal, ids: Iterable[str], *, every: bool = False) -> list[Case]:
    """The groups of these ids that can be re-scored.

    Args:
        every: Also those that are not trained on.
    """
    found = []
    with journal.reading() as db:
        for group_id in ids:
            case = _case(db, group_id, every)
            if case is not None:
                found.append(case)
    return found


def _case(db: sqlite3.Connection, group_id: str, every: bool) -> Case | None:
    events = storage.events_of(db, group_id)
    opened = next((one for one in events if isinstance(one, GroupOpened)), None)
    if opened is None or not (every or opened.episode_type == "train"):
        return None
    answers = _answers(events)
    if not answers:
        return None
    before, source, version = _rewards(events)
    scored = next((one for one in reversed(events) if isinstance(one, GroupScored)), None)
    parts = {one.index: one.parts for one in scored.scores} if scored is not None else {}
    messages = opened.body.get("messages")
    tools = opened.body.get("tools")
    return Case(
        context=GroupContext(
            group_id=group_id,
            request_id=opened.request_id,
            task_id=opened.task_id,
            query=opened.query,
            messages=messages if isinstance(messages, list) else [],
            metadata={
                **(opened.metadata or {}),
                "task_id": opened.task_id,
                "dataset_task_id": opened.dataset_task_id,
            },
            reference=opened.reference,
            answers=answers,
            tools=tools if isinstance(tools, list) else (),
        ),
        before=before,
        parts=parts,
        source=source,
        version=version,
        note=_unkept(opened),
    )


def _unkept(opened: GroupOpened) -> str:
    """What of its dataset row the journal does not have."""
    if opened.unkept:
        what = " and ".join(opened.unkept)
        return f"too large for the journal and left out: {what} of its row"
    if opened.metadata is None and (opened.dataset_task_id or opened.row_id):
        return "the metadata of its row is not in the journal: an older version wrote it"
    return ""


def _answers(events: Iterable[AnyEvent]) -> tuple[Answer, ...]:
    """The newest answer of each candidate; one that failed after it has none."""
    found: dict[int, Answer] = {}
    for event in chain.from_iterable(map(singles, events)):
        if isinstance(event, CandidateFailed):
            found.pop(event.index, None)
        elif isinstance(event, CandidateAnswered):
            found[event.index] = Answer(
                index=event.index,
                message=event.message,
                finish_reason=event.finish_reason,
                episode_uuid=event.episode_uuid,
                seconds=event.seconds,
                completion=_completion(event.message, event.finish_reason, event),
            )
    return tuple(found[index] for index in sorted(found))


def _completion(
    message: Mapping[str, Any], finish_reason: str, event: CandidateAnswered | None = None
) -> dict[str, Any]:
    """A chat completion with what the journal has of one."""
    choice = {"index": 0, "message": dict(message), "finish_reason": finish_reason}
    made: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if event is not None and event.completion_tokens:
        tokens = (event.prompt_tokens, event.completion_tokens)
        made["usage"] = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
        }
    return made


def _rewards(events: Sequence[AnyEvent]) -> tuple[dict[int, float], str, str]:
    """Rewards as they were sealed, else rated, else scored; their source and version."""
    before: dict[int, float] = {}
    source = version = ""
    scored: dict[int, float] = {}
    for event in events:
        if isinstance(event, GroupScored):
            scored = {one.index: one.reward for one in event.scores}
            version = event.version
        elif isinstance(event, GroupRated) and event.rewards:
            before, source = dict(enumerate(event.rewards)), "human"
        elif isinstance(event, RatingUndone):
            before, source = {}, ""
        elif isinstance(event, GroupSealed):
            rewards = {one.index: one.reward for one in event.rewards}
            return rewards, event.source, event.version or version
    return before or scored, source, version


# --- a file -----------------------------------------------------------------------------------


def cases_in(file: Path, bad: list[UsageError]) -> Iterator[Case]:
    """The lines of a JSONL file, one group each: query, answers and perhaps reference.

    Args:
        file: What to read, line by line.
        bad: Gets the lines that are no such group, with line and field; they are left out.

    Raises:
        UsageError: it cannot be read, or holds no group at all.
    """
    try:
        good = False
        with file.open("rb") as opened:
            number = 0
            while line := opened.readline(LINE_CAP + 1):
                number += 1
                if len(line) > LINE_CAP:
                    raise _bad(file, number, "", "the line is longer than 8 MiB")
                if not line.strip():
                    continue
                try:
                    case = _read(file, number, line)
                except UsageError as error:
                    bad.append(error)
                    continue
                good = True
                yield case
    except OSError as error:
        raise UsageError(
            f"it cannot be read: {error.strerror or error}", str(file), "Give a JSONL file"
        ) from error
    if not good:
        raise bad[0] if bad else UsageError("the file is empty", str(file), _KNOWN)


def _read(file: Path, number: int, line: bytes) -> Case:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(file, number, "", f"this is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise _bad(file, number, "", "a line is an object with query and answers")
    query = row.get("query")
    messages = row.get("messages")
    if query is None and isinstance(messages, list):
        query = _last_user(messages)
    if not isinstance(query, str):
        raise _missing(file, number, "query", row)
    answers = row.get("answers")
    if not isinstance(answers, list) or not answers:
        raise _missing(file, number, "answers", row)
    reference = row.get("reference")
    group_id = str(row.get("id") or f"{file.name}:{number}")
    metadata = row.get("metadata")
    tools = row.get("tools")
    return Case(
        context=GroupContext(
            group_id=group_id,
            request_id=group_id,
            task_id=group_id,
            query=query,
            messages=messages if isinstance(messages, list) else [_said("user", query)],
            metadata=metadata if isinstance(metadata, dict) else {},
            reference=None if reference is None else str(reference),
            answers=tuple(_answer(file, number, index, one) for index, one in enumerate(answers)),
            tools=tools if isinstance(tools, list) else (),
        ),
        before=_given(file, number, row.get("rewards"), len(answers)),
    )


def _last_user(messages: list[Any]) -> str | None:
    for one in reversed(messages):
        if isinstance(one, dict) and one.get("role") == "user":
            return content_text(one.get("content"))
    return None


def _said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def _answer(file: Path, number: int, index: int, given: Any) -> Answer:
    message = _said("assistant", given) if isinstance(given, str) else given
    if not isinstance(message, dict):
        what = f"answer {index + 1} is neither a text nor a message"
        raise _bad(file, number, "answers", what)
    message = {"role": "assistant", **message}
    finish = str(message.pop("finish_reason", "stop"))
    completion = _completion(message, finish)
    return Answer(index, message, finish, f"{file.name}:{number}:{index}", 0.0, completion)


def _given(file: Path, number: int, rewards: Any, count: int) -> dict[int, float]:
    if rewards is None:
        return {}
    good = isinstance(rewards, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in rewards
    )
    if not good or len(rewards) != count:
        raise _bad(file, number, "rewards", f"rewards are {count} numbers, one an answer")
    return dict(enumerate(map(float, rewards)))


def _missing(file: Path, number: int, field: str, row: Mapping[str, Any]) -> UsageError:
    names = ", ".join(one_line(str(name), 30) for name in list(row)[:8]) or "nothing"
    others = [] if field in row else [str(name) for name in row]
    near = closest(field, others, cutoff=0.5)
    hint = f"Is it `{one_line(near[0], 30)}`? " if near else ""
    kind = "a text" if field == "query" else "a list of at least one answer"
    what = f"`{field}` is not {kind}" if field in row else f"`{field}` is missing: {kind}"
    return _bad(file, number, field, what, f"{hint}The line has {names}")


def _bad(file: Path, number: int, field: str, what: str, todo: str = "") -> UsageError:
    where = f"{file}:{number}: {field}" if field else f"{file}:{number}"
    return UsageError(one_line(what, 300), where, f"{todo}. {_KNOWN}" if todo else _KNOWN)
