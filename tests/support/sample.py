"""Events as a proxy in use would publish them, and the state they make."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from core.events import (
    AlertRaised,
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    CandidateScore,
    ClaimedEpisode,
    ClaimIntended,
    EndedEpisode,
    EngineChanged,
    EpisodesClaimed,
    EpisodesEnded,
    Event,
    GroupClosed,
    GroupOpened,
    GroupScored,
    GroupSealed,
    MockRowDone,
    MockStarted,
    Part,
    PoolChanged,
    ProxyStarted,
    RatingAwaited,
    SentReward,
    UpdateDone,
)
from core.scoring.advantage import lacks_signal
from core.state import State, reduce

NOW = 1_790_000_000.0
HOSTILE = "[/b][red] \x1b[31mred\x1b[2J \u202egnp\u202c 你好世界 👩‍👩‍👧 [link=x]y[/link] $error"
"""Text as a model or a user may send it."""


def stamp(event: Event, seq: int) -> Event:
    """`event` with a sequence number, and with a time when it has none."""
    return msgspec.structs.replace(event, seq=seq, at=event.at or NOW, run_id="run-1")


def state_of(*events: Event) -> State:
    """What the reducer makes of `events`."""
    state = State()
    for event in events:
        reduce(state, stamp(event, state.seq + 1))
    return state


def group_events(
    number: int,
    *,
    query: str = "Why is the sky blue?",
    rewards: Sequence[float] = (0.2, 0.9, 0.4, 0.1),
    texts: Sequence[str] | None = None,
    at: float = NOW,
    step: int = 1,
    until: str = "DONE",
    server: str = "embedded",
    row_id: str = "",
    damping: float = 0.0,
) -> list[Event]:
    """All events of one group.

    Args:
        until: The phase in which it is left: QUEUED, CLAIMING, GENERATING, SCORING,
            AWAITING_RATING (clock 20 s from `at`), DONE or ABORTED.
    """
    group_id = f"g{number:04}"
    n = len(rewards)
    names: dict[str, Any] = {"group_id": group_id, "server": server}
    best = max(range(n), key=lambda index: (rewards[index], -index))
    mean = sum(rewards) / n
    std = (sum((reward - mean) ** 2 for reward in rewards) / n) ** 0.5
    answers = texts or [f"answer {index} to: {query}" for index in range(n)]
    uuids = [f"ep-{number}-{index}" for index in range(n)]
    events: list[tuple[str, list[Event]]] = [
        (
            "QUEUED",
            [
                GroupOpened(
                    **names,
                    request_id=f"r{number}",
                    task_id=f"r{number}#{group_id}",
                    n=n,
                    query=query,
                    body={"messages": [{"role": "user", "content": query}]},
                    model="any",
                    row_id=row_id,
                    at=at,
                )
            ],
        ),
        ("CLAIMING", [ClaimIntended(**names, n=n, discard_timeout=240.0, at=at + 0.1)]),
        (
            "GENERATING",
            [
                *(
                    EpisodesClaimed(
                        **names,
                        episodes=(ClaimedEpisode(index, uuids[index]),),
                        step=step,
                        at=at + 0.2,
                    )
                    for index in range(n)
                ),
                EpisodesClaimed(
                    **names,
                    episodes=(),
                    step=step,
                    expires_at=at + 240,
                    damping=damping,
                    at=at + 0.3,
                ),
            ],
        ),
        (
            "SCORING",
            [
                *(
                    CandidatesAnswered(
                        **names,
                        candidates=(
                            AnsweredCandidate(
                                index=index,
                                message={"role": "assistant", "content": answers[index]},
                                finish_reason="stop",
                                seconds=1.5 + index,
                                completion_tokens=40 + index,
                            ),
                        ),
                        at=at + 2 + index,
                    )
                    for index in range(n)
                ),
                GroupScored(
                    **names,
                    scores=tuple(
                        CandidateScore(
                            index=index,
                            reward=reward,
                            parts=(
                                Part(name="length", value=reward, weight=0.5, reason="42 words"),
                                Part(name="format", value=1.0, gate=True),
                            ),
                        )
                        for index, reward in enumerate(rewards)
                    ),
                    best=best,
                    version="v1",
                    seconds=0.05,
                    at=at + 6,
                ),
                AnswerReturned(**names, index=best, why="winner", waited=6.1, at=at + 6.1),
            ],
        ),
        (
            "AWAITING_RATING",
            [RatingAwaited(**names, until=at + 20, fallback="accept", why="window", at=at + 6.2)],
        ),
        (
            "DONE",
            [
                GroupSealed(
                    **names,
                    rewards=tuple(
                        SentReward(
                            index=index,
                            reward=reward,
                            advantage=(reward - mean) / (std + damping) if std else 0.0,
                        )
                        for index, reward in enumerate(rewards)
                    ),
                    best=best,
                    source="auto",
                    dead=lacks_signal(rewards, damping),
                    spread=std,
                    version="v1",
                    at=at + 9,
                ),
                *(
                    EpisodesEnded(
                        **names,
                        episodes=(EndedEpisode(index),),
                        at=at + 9.2,
                    )
                    for index in range(n)
                ),
                GroupClosed(
                    **names,
                    phase="DONE",
                    latency={
                        "queue": 0.1,
                        "claim": 0.2,
                        "generate": 5.7,
                        "score": 0.1,
                        "rate": 3.0,
                        "submit": 0.2,
                    },
                    at=at + 9.3,
                ),
            ],
        ),
    ]
    result: list[Event] = []
    for phase, some in events:
        if phase == "AWAITING_RATING" and until in ("DONE", "ABORTED"):
            continue
        if phase == "DONE" and until == "ABORTED":
            result.append(
                GroupClosed(**names, phase="ABORTED", cause="the operator said so", at=at + 9)
            )
            break
        result += some
        if phase == until:
            break
    return result


def sample_events(query: str = "Why is the sky blue?") -> list[Event]:
    """A console some updates old: twelve steps, groups in every phase, a mock user, two alerts."""
    events: list[Event] = [
        ProxyStarted(
            client_uuid="c1",
            pid=4242,
            url="http://127.0.0.1:8000",
            version="0.1.0",
            servers={"embedded": "http://127.0.0.1:10086"},
            rewards="builtin",
            at=NOW - 700,
        ),
        EngineChanged(server="embedded", state="OFFLINE", step=0, at=NOW - 699),
        EngineChanged(server="embedded", state="BOOTING", step=0, at=NOW - 690),
    ]
    at, number = NOW - 680, 0
    for step in range(1, 13):
        events.append(EngineChanged(server="embedded", state="ROLLING", step=step, at=at))
        for turn in range(4):
            number += 1
            base = 0.25 + 0.045 * step
            rewards = (
                (0.5,) * 4
                if number % 9 == 0
                else tuple(
                    max(0.0, min(1.0, base + 0.11 * ((turn + index * 2 + step) % 4 - 1.5)))
                    for index in range(4)
                )
            )
            if step < 12 or turn < 2:
                events += group_events(
                    number, query=query, rewards=rewards, at=at + turn * 9, step=step
                )
        if step < 12:
            events += [
                EngineChanged(server="embedded", state="ROLLING_POST", step=step, at=at + 41),
                EngineChanged(server="embedded", state="WEIGHT_SYNCING", step=step, at=at + 44),
                UpdateDone(
                    server="embedded",
                    step=step,
                    stats={"loss": 0.42 - 0.01 * step, "kl": 0.01 * step, "grad_norm": 1.25},
                    at=at + 52,
                ),
            ]
        at += 54
    events += group_events(901, query=query, at=NOW - 4, step=12, until="GENERATING")
    events += group_events(902, query=query, at=NOW - 12, step=12, until="AWAITING_RATING")
    events += group_events(903, query=query, at=NOW - 2, step=12, until="QUEUED")
    events += [
        PoolChanged(
            server="embedded",
            method="rollout_until_finish_enough_tasks",
            completed_episodes=8,
            episode_target=16,
            completed_tasks=2,
            task_target=4,
            non_dummy_tasks=2,
            repeats=4,
            running=8,
            running_others=0,
            model="tiny",
        ),
        MockStarted(
            mock_id="m1",
            dataset="questions.jsonl",
            target="http://127.0.0.1:8000/v1",
            total=60,
            concurrency=3,
            at=NOW - 300,
        ),
    ]
    for row in range(14):
        events.append(
            MockRowDone(
                mock_id="m1",
                row_id=f"row-{row}",
                query=query,
                ok=row != 5,
                seconds=6.0 + row % 3,
                error="503: no candidate in time" if row == 5 else "",
                at=NOW - 280 + row * 20,
            )
        )
    events += [
        AlertRaised(
            key="dead",
            cause="4 of the last 20 groups are dead: equal rewards",
            todo="Look at the reward parts of a dead group (2, then dead:yes)",
            at=NOW - 60,
        ),
        AlertRaised(
            key="hooks",
            cause="on_compute_relative_reward.py raised ValueError",
            todo="See the traceback in the log (7); the groups wait for you",
            level="error",
            at=NOW - 20,
        ),
    ]
    return events


@lru_cache
def _sample(query: str) -> bytes:
    return msgspec.json.encode(state_of(*sample_events(query)))


def sample_state(query: str = "Why is the sky blue?") -> State:
    """The state after `sample_events`, which are reduced once: a copy takes a tenth of the time."""
    return msgspec.json.decode(_sample(query), type=State)
