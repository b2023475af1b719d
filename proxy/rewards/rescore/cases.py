"""Groups to score again, read from a journal or from a file with one group per line."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
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
from core.journal.reader import JournalReader
from proxy.rewards.rescore.results import Case
from proxy.rewards.source import Answer, GroupContext

LINE_CAP = 8 << 20
"""Maximum size of a line of a file in bytes."""
FIELDS = ("query", "answers", "reference", "messages", "metadata", "tools", "rewards", "id")
_KNOWN = f"A line has {', '.join(FIELDS)}; query and answers are required"


# --- the journal ------------------------------------------------------------------------------


def newest_cases(journal: JournalReader, limit: int) -> list[Case]:
    """Return the newest groups that are trained on and have answers, at most `limit`, in order."""
    found = (_case(events) for events in journal.newest_groups())
    return list(itertools.islice(filter(None, found), limit))[::-1]


def group_case(journal: JournalReader, prefix: str) -> Case:
    """Return the one group whose id begins with `prefix`, also if it is not trained on.

    Raises:
        AjetError: no group or several groups match, or none of its candidates answered.
    """
    ids = journal.ids_with_prefix(prefix)
    if len(ids) != 1:
        what = "several groups begin" if ids else "no group begins"
        raise AjetError(f"{what} with `{one_line(prefix, 40)}`", todo="Give the whole id")
    case = _case(journal.group_events(ids[0]), include_untrained=True)
    if case is None:
        raise UsageError("no candidate of this group answered", ids[0])
    return case


def _case(events: Sequence[AnyEvent], *, include_untrained: bool = False) -> Case | None:
    opened = next((event for event in events if isinstance(event, GroupOpened)), None)
    if opened is None or not (include_untrained or opened.episode_type == "train"):
        return None
    answers = _answers(events)
    if not answers:
        return None
    before, hand, source, version = _rewards(events)
    scored = next((event for event in reversed(events) if isinstance(event, GroupScored)), None)
    parts = {score.index: score.parts for score in scored.scores} if scored is not None else {}
    messages = opened.body.get("messages")
    tools = opened.body.get("tools")
    return Case(
        context=GroupContext(
            group_id=opened.group_id,
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
            scored = {score.index: score.reward for score in event.scores}
            version = event.version
        elif isinstance(event, GroupRated) and event.rewards:
            hand, source = dict(enumerate(event.rewards)), "human"
        elif isinstance(event, RatingUndone):
            hand, source = {}, ""
        elif isinstance(event, GroupSealed):
            rewards = {sealed.index: sealed.reward for sealed in event.rewards}
            version = event.version or version
            if event.source == "human":
                return scored, rewards, event.source, version
            return rewards, {}, event.source, version
    return scored, hand, source, version


# --- a file -----------------------------------------------------------------------------------


def cases_in(file: Path) -> tuple[list[Case], list[UsageError]]:
    """Return the groups of a JSONL file, and an error with line and field for each invalid line.

    A line has a query, answers and perhaps a reference.

    Raises:
        UsageError: the file cannot be read, or contains no valid group.
    """
    cases: list[Case] = []
    faults: list[UsageError] = []
    try:
        with file.open("rb") as opened:
            for number in itertools.count(1):
                if not (line := opened.readline(LINE_CAP + 1)):
                    break
                if len(line) > LINE_CAP:
                    raise _bad(file, number, "", "the line is longer than 8 MiB")
                if line.strip():
                    try:
                        cases.append(_read(file, number, line))
                    except UsageError as error:
                        faults.append(error)
    except OSError as error:
        raise UsageError(
            f"it cannot be read: {error.strerror or error}", str(file), "Give a JSONL file"
        ) from error
    if not cases:
        raise faults[0] if faults else UsageError("the file is empty", str(file), _KNOWN)
    return cases, faults


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
            answers=tuple(
                _answer(file, number, index, answer) for index, answer in enumerate(answers)
            ),
            tools=tools if isinstance(tools, list) else (),
        ),
        before=_rewards_of_row(file, number, row.get("rewards"), len(answers)),
    )


def _last_user(messages: list[Any]) -> str | None:
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return content_text(message.get("content"))
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
        isinstance(reward, int | float) and not isinstance(reward, bool) for reward in rewards
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
