"""Groups to score again, read from a journal or from a file with one group per line."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import closest, content_text, one_line
from core.events import (
    AnsweredCandidate,
    AnyEvent,
    CandidateFailed,
    CandidatesAnswered,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    RatingUndone,
)
from core.journal import storage
from core.journal.history import END, ReadableJournal
from proxy.rewards.source import Answer, GroupContext
from proxy.rewards.trial.replay import Case

PAGE = 16
"""Number of groups read at a time."""
LINE_CAP = 8 << 20
"""Maximum size of a line of a file in bytes."""
FIELDS = ("query", "answers", "reference", "messages", "metadata", "tools", "rewards", "id")
_KNOWN = f"A line has {', '.join(FIELDS)}; query and answers are required"


# --- the journal ------------------------------------------------------------------------------


def newest_ids(journal: ReadableJournal, limit: int) -> list[str]:
    """Return the newest ids of groups that can be scored again, at most `limit`, oldest first."""
    ids: list[str] = []
    before = END
    with journal.reading() as db:
        while len(ids) < limit:
            rows = db.execute(
                "select id, opened_seq from groups where opened_seq<? order by opened_seq desc"
                " limit ?",
                (before, PAGE),
            ).fetchall()
            if not rows:
                break
            before = rows[-1][1]
            ids += [str(row[0]) for row in rows if _case(db, str(row[0]), False) is not None]
    return ids[:limit][::-1]


def full_id(journal: ReadableJournal, prefix: str) -> str:
    """Return the id of the one group whose id begins with `prefix`.

    Raises:
        AjetError: no group or several groups match.
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
    """Yield the ids in pages."""
    for first in range(0, len(ids), PAGE):
        yield ids[first : first + PAGE]


def cases_of(
    journal: ReadableJournal, ids: Iterable[str], *, include_untrained: bool = False
) -> list[Case]:
    """Return those of the groups that can be scored again.

    Args:
        journal: The journal with the groups.
        ids: Ids of groups.
        include_untrained: Whether to include groups that are not trained on.
    """
    cases = []
    with journal.reading() as db:
        for group_id in ids:
            case = _case(db, group_id, include_untrained)
            if case is not None:
                cases.append(case)
    return cases


def _case(db: sqlite3.Connection, group_id: str, include_untrained: bool) -> Case | None:
    events = storage.events_of(db, group_id)
    opened = next((one for one in events if isinstance(one, GroupOpened)), None)
    if opened is None or not (include_untrained or opened.episode_type == "train"):
        return None
    answers = _answers(events)
    if not answers:
        return None
    before, hand, source, version = _rewards(events)
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
        hand=hand,
        parts=parts,
        source=source,
        version=version,
        note=_missing_data_note(opened),
    )


def _missing_data_note(opened: GroupOpened) -> str:
    """Return a note about data of the dataset row that the journal lacks; empty if none."""
    if opened.unkept:
        fields = " and ".join(opened.unkept)
        return f"too large for the journal and left out: {fields} of its row"
    return ""


def _answers(events: Iterable[AnyEvent]) -> tuple[Answer, ...]:
    """Return the newest answer of each candidate; one that failed after its answer has none."""
    answers: dict[int, Answer] = {}
    for event in events:
        if isinstance(event, CandidateFailed):
            answers.pop(event.index, None)
        elif isinstance(event, CandidatesAnswered):
            answers |= {answered.index: _answer_of(answered) for answered in event.candidates}
    return tuple(answers[index] for index in sorted(answers))


def _answer_of(answered: AnsweredCandidate) -> Answer:
    return Answer(
        index=answered.index,
        message=answered.message,
        finish_reason=answered.finish_reason,
        episode_uuid=answered.episode_uuid,
        seconds=answered.seconds,
        completion=_completion(answered.message, answered.finish_reason, answered),
    )


def _completion(
    message: Mapping[str, Any], finish_reason: str, answered: AnsweredCandidate | None = None
) -> dict[str, Any]:
    """Return a chat completion from the data that the journal has."""
    choice = {"index": 0, "message": dict(message), "finish_reason": finish_reason}
    completion: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if answered is not None and answered.completion_tokens:
        tokens = (answered.prompt_tokens, answered.completion_tokens)
        completion["usage"] = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
        }
    return completion


def _rewards(
    events: Sequence[AnyEvent],
) -> tuple[dict[int, float], dict[int, float], str, str]:
    """Return the automatic rewards, those of a vote, the source of what is sent, and the version.

    The automatic rewards are those that were sent, else those that were scored.
    """
    hand: dict[int, float] = {}
    source = version = ""
    scored: dict[int, float] = {}
    for event in events:
        if isinstance(event, GroupScored):
            scored = {one.index: one.reward for one in event.scores}
            version = event.version
        elif isinstance(event, GroupRated) and event.rewards:
            hand, source = dict(enumerate(event.rewards)), "human"
        elif isinstance(event, RatingUndone):
            hand, source = {}, ""
        elif isinstance(event, GroupSealed):
            rewards = {one.index: one.reward for one in event.rewards}
            version = event.version or version
            if event.source == "human":
                return scored, rewards, event.source, version
            return rewards, {}, event.source, version
    return scored, hand, source, version


# --- a file -----------------------------------------------------------------------------------


def cases_in(file: Path, faults: list[UsageError]) -> Iterator[Case]:
    """Yield the groups of a JSONL file: one per line, with query, answers and perhaps a reference.

    Args:
        file: The file; it is read line by line.
        faults: Receives an error with line and field for each invalid line; such lines are skipped.

    Raises:
        UsageError: the file cannot be read, or contains no valid group.
    """
    try:
        any_valid = False
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
                    faults.append(error)
                    continue
                any_valid = True
                yield case
    except OSError as error:
        raise UsageError(
            f"it cannot be read: {error.strerror or error}", str(file), "Give a JSONL file"
        ) from error
    if not any_valid:
        raise faults[0] if faults else UsageError("the file is empty", str(file), _KNOWN)


def _read(file: Path, number: int, line: bytes) -> Case:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(file, number, "", f"this is not JSON: {error}") from error
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
            messages=messages if isinstance(messages, list) else [_message("user", query)],
            metadata=metadata if isinstance(metadata, dict) else {},
            reference=None if reference is None else str(reference),
            answers=tuple(_answer(file, number, index, one) for index, one in enumerate(answers)),
            tools=tools if isinstance(tools, list) else (),
        ),
        before=_rewards_of_row(file, number, row.get("rewards"), len(answers)),
    )


def _last_user(messages: list[Any]) -> str | None:
    for one in reversed(messages):
        if isinstance(one, dict) and one.get("role") == "user":
            return content_text(one.get("content"))
    return None


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def _answer(file: Path, number: int, index: int, answer: Any) -> Answer:
    message = _message("assistant", answer) if isinstance(answer, str) else answer
    if not isinstance(message, dict):
        what = f"answer {index + 1} is neither a text nor a message"
        raise _bad(file, number, "answers", what)
    message = {"role": "assistant", **message}
    finish = str(message.pop("finish_reason", "stop"))
    completion = _completion(message, finish)
    return Answer(index, message, finish, f"{file.name}:{number}:{index}", 0.0, completion)


def _rewards_of_row(file: Path, number: int, rewards: Any, count: int) -> dict[int, float]:
    if rewards is None:
        return {}
    valid = isinstance(rewards, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in rewards
    )
    if not valid or len(rewards) != count:
        raise _bad(file, number, "rewards", f"rewards are {count} numbers, one for each answer")
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
