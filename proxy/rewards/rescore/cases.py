"""Groups to score again, read from a journal or from a file with one group per line.

Groups scored again, compared with their earlier rewards.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import content_text, one_line
from core.events import (
    AnsweredCandidate,
    AnyEvent,
    CandidateFailed,
    CandidatesAnswered,
    EpisodesClaimed,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    Part,
    RatingUndone,
    TrialGroup,
    TrialSummary,
)
from core.journal.reader import JournalReader
from core.scoring.advantage import advantages, is_dead, spread
from core.scoring.agreement import only_top
from core.state.common import record_of
from proxy.rewards.source import Abstention, Answer, GroupContext, Score

MAX_CHANGED = 3
"""Number of most-changed groups that a summary contains."""
CAUSES = 5
QUERY = 120
"""Maximum length of a query in a summary, in characters."""


@dataclass(frozen=True, slots=True)
class Case:
    """One group to score again."""

    context: GroupContext
    before: Mapping[int, float] = field(default_factory=dict)
    """Earlier rewards by candidate; empty for none. Those of a group rated by hand are its
    automatic ones, since other rewards change nothing else."""
    hand: Mapping[int, float] = field(default_factory=dict)
    """Rewards of its vote by candidate; empty unless a person rated it."""
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)
    """Parts of the earlier automatic rewards, by candidate."""
    source: str = ""
    """`auto` or `human` once the rewards were sealed, else empty."""
    version: str = ""
    """Version of the rewards that scored it before."""
    note: str = ""
    """What differs from the original group; empty for nothing."""


@dataclass(frozen=True)
class Rescored:
    """Result of scoring one case again: scores, or an abstention."""

    case: Case
    after: tuple[Score, ...] = ()
    abstention: Abstention | None = None
    seconds: float = 0.0

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.case.context.group_id

    @property
    def rewards(self) -> dict[int, float]:
        """The new rewards by candidate."""
        return {score.index: score.reward for score in self.after}

    @property
    def pair(self) -> tuple[list[float], list[float]]:
        """Rewards before and after, of the candidates that have both."""
        before, now = self.case.before, self.rewards
        both = [index for index in sorted(before) if index in now]
        return [before[index] for index in both], [now[index] for index in both]

    @property
    def compared(self) -> bool:
        """Whether some candidates have rewards before and after."""
        return not self.case.before.keys().isdisjoint(self.rewards)

    @property
    def winners(self) -> tuple[int | None, int | None]:
        """The single best candidate before and after; None for a tie."""
        return _winners(self.case.before, self.rewards)

    @property
    def flipped(self) -> bool:
        """Whether another candidate is the best."""
        before, after = self.winners
        return before is not None and after is not None and before != after

    @property
    def judged(self) -> bool:
        """Whether some candidates have a new reward and one of a person."""
        return not self.case.hand.keys().isdisjoint(self.rewards)

    @property
    def agrees(self) -> bool:
        """Whether the new rewards put the person's choice first; for a tie, no single one."""
        chosen, now = _winners(self.case.hand, self.rewards)
        return chosen == now

    @property
    def dead(self) -> tuple[bool, bool]:
        """Whether the group trains nothing, before and after."""
        before, after = self.pair
        return is_dead(before), is_dead(after)

    @property
    def change(self) -> float:
        """Mean absolute difference of the advantages, which determines the weight update."""
        before, after = self.pair
        if not before:
            return 0.0
        rows = zip(advantages(before, 0.0), advantages(after, 0.0), strict=True)
        return sum(abs(then - now) for then, now in rows) / len(before)


def _winners(
    first: Mapping[int, float], second: Mapping[int, float]
) -> tuple[int | None, int | None]:
    """Return the single best of the candidates that have both rewards, by each of them."""
    both = [index for index in first if index in second]
    return (
        only_top({index: first[index] for index in both}),
        only_top({index: second[index] for index in both}),
    )


def summary_of(results: Sequence[Rescored], version: str) -> TrialSummary:
    """Return the summary of many results."""
    compared = [result for result in results if result.compared]
    dead = [result.dead for result in compared]
    pairs = [result.pair for result in compared]
    by_hand = [result for result in results if result.judged]
    causes = Counter(result.abstention.cause for result in results if result.abstention)
    notes = Counter(result.case.note for result in results if result.case.note)
    changed = [result for result in compared if result.change > 1e-9]
    changed.sort(key=lambda result: result.change, reverse=True)
    return TrialSummary(
        groups=len(results),
        compared=len(compared),
        flips=sum(result.flipped for result in compared),
        died=sum(now and not then for then, now in dead),
        revived=sum(then and not now for then, now in dead),
        dead_before=sum(then for then, _ in dead),
        dead_after=sum(now for _, now in dead),
        by_hand=len(by_hand),
        by_hand_kept=sum(result.agrees for result in by_hand),
        mean_before=_mean([value for before, _ in pairs for value in before]),
        mean_after=_mean([value for _, after in pairs for value in after]),
        spread_before=_mean([spread(before) for before, _ in pairs]),
        spread_after=_mean([spread(after) for _, after in pairs]),
        gained=sum(
            bool(result.after) and not (result.case.before or result.case.hand)
            for result in results
        ),
        outside=sum(
            any(not -1e-9 <= score.reward <= 1 + 1e-9 for score in result.after)
            for result in results
        ),
        abstained=causes.total(),
        abstentions=tuple(causes.most_common(CAUSES)),
        seconds=sum(result.seconds for result in results),
        slowest=max((result.seconds for result in results), default=0.0),
        notes=tuple(notes.most_common(CAUSES)),
        version=version,
        most=tuple(_brief(result) for result in changed[:MAX_CHANGED]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _brief(result: Rescored) -> TrialGroup:
    (before, after), (winner, now) = result.pair, result.winners
    return TrialGroup(
        group_id=result.group_id,
        query=result.case.context.query[:QUERY],
        before=tuple(before),
        after=tuple(after),
        winner_before=winner,
        winner_after=now,
        change=result.change,
    )


LINE_CAP = 8 << 20
"""Maximum size of a line of a file in bytes."""
_FIELD = re.compile(r"\$\.(\w+)|field `(\w+)`")
_KNOWN = (
    "A line has query, answers, reference, messages, metadata, tools, rewards, id; "
    "query and answers are required"
)


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
    note = ""
    if opened.unkept:
        fields = " and ".join(opened.unkept)
        note = f"too large for the journal and left out: {fields} of its row"
    messages, tools = opened.body.get("messages"), opened.body.get("tools")
    ids = {"task_id": opened.task_id, "dataset_task_id": opened.dataset_task_id}
    return Case(
        context=record_of(
            GroupContext,
            opened,
            messages=messages if isinstance(messages, list) else [],
            metadata={**(opened.metadata or {}), **ids},
            answers=answers,
            tools=tools if isinstance(tools, list) else (),
        ),
        before=before,
        hand=hand,
        parts=parts,
        source=source,
        version=version,
        note=note,
    )


def _answers(events: Iterable[AnyEvent]) -> tuple[Answer, ...]:
    """Return the newest answer of each candidate; one that failed after its answer has none."""
    answers: dict[int, Answer] = {}
    uuids: dict[int, str] = {}
    for event in events:
        if isinstance(event, EpisodesClaimed):
            uuids |= {claim.index: claim.episode_uuid for claim in event.episodes}
        elif isinstance(event, CandidateFailed):
            answers.pop(event.index, None)
        elif isinstance(event, CandidatesAnswered):
            for answered in event.candidates:
                uuid = uuids.get(answered.index, "")
                completion = _completion(answered.message, answered.finish_reason, answered)
                answer = record_of(Answer, answered, episode_uuid=uuid, completion=completion)
                answers[answered.index] = answer
    return tuple(answers[index] for index in sorted(answers))


def _completion(
    message: Mapping[str, Any], finish_reason: str, answered: AnsweredCandidate | None = None
) -> dict[str, Any]:
    """Return a chat completion from the data that the journal has."""
    choice = {"index": 0, "message": dict(message), "finish_reason": finish_reason}
    completion: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
    if answered is not None and answered.completion_tokens:
        counts = {name: getattr(answered, name) for name in ("prompt_tokens", "completion_tokens")}
        completion["usage"] = counts | {"total_tokens": sum(counts.values())}
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


class _Row(msgspec.Struct):
    """A line of a file of cases."""

    query: str
    answers: Annotated[list[str | dict[str, Any]], msgspec.Meta(min_length=1)]
    reference: str | int | float | None = None
    messages: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Any] | None = None
    rewards: list[float] | None = None
    id: str | int | None = None


def _read(file: Path, number: int, line: bytes) -> Case:
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(file, number, "", f"this is not JSON: {error}") from error
    if isinstance(raw, dict) and "query" not in raw:
        raw |= _last_user(raw.get("messages"))
    try:
        row = msgspec.convert(raw, _Row)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        name = (field[1] or field[2]) if field else ""
        raise _bad(file, number, name, str(error)) from error
    if row.rewards is not None and len(row.rewards) != len(row.answers):
        what = f"{len(row.rewards)} rewards for {len(row.answers)} answers"
        raise _bad(file, number, "rewards", what)
    group_id = str(row.id or f"{file.name}:{number}")
    context = GroupContext(
        group_id=group_id,
        request_id=group_id,
        task_id=group_id,
        query=row.query,
        messages=row.messages or [_message("user", row.query)],
        metadata=row.metadata or {},
        reference=None if row.reference is None else str(row.reference),
        answers=tuple(
            _answer(f"{group_id}:{index}", index, answer)
            for index, answer in enumerate(row.answers)
        ),
        tools=row.tools or (),
    )
    return Case(context, before=dict(enumerate(row.rewards or ())))


def _last_user(messages: Any) -> dict[str, str]:
    """Return the query that the newest message of a user is, as a field of a line."""
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            return {"query": content_text(message.get("content"))}
    return {}


def _message(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def _answer(episode_uuid: str, index: int, answer: str | dict[str, Any]) -> Answer:
    message: dict[str, Any] = {"role": "assistant"}
    message |= {"content": answer} if isinstance(answer, str) else answer
    finish = str(message.pop("finish_reason", "stop"))
    return Answer(index, message, finish, episode_uuid, 0.0, _completion(message, finish))


def _bad(file: Path, number: int, field: str, what: str) -> UsageError:
    where = f"{file}:{number}: {field}" if field else f"{file}:{number}"
    return UsageError(one_line(what, 300), where, _KNOWN)
