"""The result of a group: its sealed rewards, or why there was no answer."""

from collections.abc import Container, Sequence

from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.errors import ChatErrorKind
from core.events import GroupSealed, SentReward
from core.events.causes import NoAnswers, TooFewAnswers
from core.scoring.advantage import advantages, lacks_signal, spread
from core.state import Group
from proxy.groups.generate import GONE
from proxy.groups.run import Candidate, GroupRun
from proxy.http.errors import ApiError
from proxy.http.upstream_errors import refusal_of


def sealed(
    run: GroupRun, rewards: dict[int, float], best: int, source: str, *, unrated: bool = False
) -> GroupSealed:
    """Return the event that fixes these rewards, by candidate; see `GroupSealed`."""
    # The reward of a superseded candidate cannot be sent.
    sendable = [one for one in run.usable if not one.superseded]
    return _seal(
        run.facts.server.name,
        run.group_id,
        [(one.index, one.uuid, rewards[one.index]) for one in sendable],
        best,
        source,
        run.facts.damping,
        run.sheet.version if run.sheet is not None else "",
        unrated,
    )


def sealed_by_vote(group: Group, held: Container[str]) -> GroupSealed | None:
    """Return the event that fixes the rewards of the committed vote of a group, from state alone.

    Args:
        group: Not sealed.
        held: Episodes that can still be ended.

    Returns:
        None if no vote gives rewards, or one of its episodes cannot be ended.
    """
    answered = [one for one in group.candidates if one.phase == "answered"]
    rewards = group.rating.rewards if group.rating is not None else ()
    if not rewards or len(rewards) != len(answered):
        return None
    if any(one.episode_uuid not in held for one in answered):
        return None
    values = [
        (one.index, one.episode_uuid, reward) for one, reward in zip(answered, rewards, strict=True)
    ]
    best = max(values, key=lambda value: (value[2], -value[0]))[0]
    return _seal(group.server, group.group_id, values, best, "human", group.damping, group.version)


def _seal(
    server: str,
    group_id: str,
    values: Sequence[tuple[int, str, float]],
    best: int,
    source: str,
    damping: float,
    version: str,
    unrated: bool = False,
) -> GroupSealed:
    """Return the event; `values` are candidate index, episode and reward."""
    rewards = [reward for _, _, reward in values]
    return GroupSealed(
        server=server,
        group_id=group_id,
        rewards=tuple(
            [
                SentReward(index=index, episode_uuid=uuid, reward=reward, advantage=advantage)
                for (index, uuid, reward), advantage in zip(
                    values, advantages(rewards, damping), strict=True
                )
            ]
        ),
        best=best,
        source=source,
        dead=lacks_signal(rewards, damping),
        spread=spread(rewards),
        version=version,
        unrated=unrated,
    )


def no_answers(run: GroupRun) -> NoAnswers:
    """Return why the candidates failed, and why they were not retried."""
    return NoAnswers(
        errors=tuple(dict.fromkeys(one.error or "no answer" for one in run.candidates)),
        unretried=tuple(dict.fromkeys(one.unretried for one in run.candidates if one.unretried)),
    )


def no_answers_text(failures: NoAnswers) -> str:
    """Return the cause of a group without answers as text."""
    more = f"; not retried: {', '.join(failures.unretried)}" if failures.unretried else ""
    return f"no candidate gave an answer: {', '.join(failures.errors)}{more}"


def shortfall(run: GroupRun) -> tuple[str, TooFewAnswers | None]:
    """Return how many candidates answered and why the others did not, as text and by kind; empty
    and None if all did."""
    if len(run.usable) >= run.n:
        return "", None
    causes: dict[str, list[str]] = {}
    for one in run.candidates:
        if not one.usable:
            causes.setdefault(_why_failed(one), []).append(str(one.index + 1))
    details = [
        f"candidate{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {cause}"
        for cause, numbers in causes.items()
    ]
    text = "; ".join([f"short: {len(run.usable)} of {run.n} candidates answered", *details])
    return text, TooFewAnswers(answered=len(run.usable), of=run.n)


def _why_failed(candidate: Candidate) -> str:
    failure = candidate.failure
    if failure is None:
        return "not asked"
    verb = "aborted" if failure.kind is ChatErrorKind.TIMED_OUT else "failed"
    why = one_line(failure.text, 160) or failure.kind.value
    more = f" (not retried: {candidate.unretried})" if candidate.unretried else ""
    return f"{verb}: {why}{more}"


def no_answer_error(run: GroupRun) -> ApiError:
    """Return the error for the user when no candidate gave an answer."""
    if (refusal := refusal_of(one.failure for one in run.candidates)) is not None:
        return refusal
    errors = {one.error for one in run.candidates}
    if errors == {ChatErrorKind.OVERFLOW.value}:
        text = (
            "This model's maximum context length is exceeded by your prompt. "
            "Please reduce the length of the input prompt."
        )
        return ApiError(400, None, text, param="input_tokens")
    if errors == {ChatErrorKind.OVERSIZED.value}:
        text = "The answers of the model are larger than the request allows."
        return ApiError(502, None, text, repeatable=False)
    if errors & GONE:
        return run.overloaded(5)
    return run.overloaded(
        5, f"None of the {run.n} candidates gave an answer. Please try again later."
    )
