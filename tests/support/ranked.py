"""Journals with ranked groups, written without a proxy."""

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    CandidateScore,
    ClaimedEpisode,
    EndedEpisode,
    EpisodesClaimed,
    EpisodesEnded,
    Event,
    GroupClosed,
    GroupEdited,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    Part,
    SentReward,
)
from core.journal.writer import Journal
from core.scoring.advantage import advantages, is_dead

BEGAN = 1_790_000_000.0
"""Unix seconds of the first event."""

Message = dict[str, Any]


def ranked_group(
    name: str,
    prompt: str | Sequence[Message] = "What is 2 + 3?",
    answers: Sequence[str | Message] = ("5", "6"),
    rewards: Sequence[float] = (1.0, 0.0),
    *,
    vote: dict[str, Any] | None = None,
    human: Sequence[float] = (),
    edited: str = "",
    phase: str = "DONE",
    truncated: bool = False,
    tools: Sequence[Message] = (),
    **opened: Any,
) -> list[Event]:
    """The events of a closed group with scored answers.

    Args:
        name: Its id.
        prompt: The question, or the messages.
        answers: Texts or messages.
        rewards: Automatic rewards; empty for a group without.
        vote: Fields of the vote; None without one.
        human: Rewards of the vote.
        edited: Correction of the first answer.
        phase: The phase in which it ended.
        truncated: Whether the server cut the prompt.
        tools: Tools of the request.
        **opened: Further fields of `GroupOpened`.
    """
    names: dict[str, Any] = {"group_id": name, "server": "embedded"}
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    body: Message = {"model": "ajet", "messages": messages}
    if tools:
        body["tools"] = list(tools)
    count = len(answers)
    uuids = [f"{name}-{index}" for index in range(count)]
    content = messages[-1].get("content") if messages else ""
    fields: Message = {
        "request_id": f"request-{name}",
        "task_id": f"task#{name}",
        "n": count,
        "query": content if isinstance(content, str) else "",
        "body": body,
        "model": "ajet",
        "turns": 1 + sum(message.get("role") == "assistant" for message in messages),
    }
    sealed = list(human or rewards)
    gains = advantages(sealed, 0.0)
    events: list[Event] = [
        GroupOpened(**{**names, **fields, **opened}),
        EpisodesClaimed(
            **names,
            episodes=tuple(
                ClaimedEpisode(index=index, episode_uuid=uuid) for index, uuid in enumerate(uuids)
            ),
            step=7,
            run=1,
            expires_at=BEGAN + 600,
        ),
        CandidatesAnswered(
            **names,
            candidates=tuple(
                AnsweredCandidate(
                    index=index,
                    message={"role": "assistant", "content": answer}
                    if isinstance(answer, str)
                    else answer,
                    finish_reason="stop",
                    seconds=1.0,
                    prompt_tokens=9,
                    completion_tokens=3,
                    truncated=truncated,
                )
                for index, answer in enumerate(answers)
            ),
        ),
    ]
    if rewards:
        scores = tuple(
            CandidateScore(index=index, reward=reward, parts=(Part(name="exact", value=reward),))
            for index, reward in enumerate(rewards)
        )
        events.append(GroupScored(**names, scores=scores, best=0, version="v1", seconds=0.1))
    if vote is not None:
        events.append(GroupRated(**{**names, "rewards": tuple(human), "rater": "ada", **vote}))
    events.append(AnswerReturned(**names, index=0, why="winner", waited=1.0))
    if sealed and phase == "DONE":
        events += [
            GroupSealed(
                **names,
                rewards=tuple(
                    SentReward(index=index, reward=one, advantage=gains[index])
                    for index, one in enumerate(sealed)
                ),
                best=sealed.index(max(sealed)),
                source="human" if human else "auto",
                dead="equal rewards" if is_dead(sealed) else "",
                version="v1",
            ),
            EpisodesEnded(
                **names,
                episodes=tuple(EndedEpisode(index=index) for index in range(len(sealed))),
            ),
        ]
    events.append(GroupClosed(**names, phase=phase))
    if edited:
        events.append(GroupEdited(**names, index=0, edited=edited, rater="ada"))
    return events


def called(arguments: str) -> dict[str, Any]:
    """An answer that calls a tool."""
    function = {"name": "add", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def write_journal(path: Path, events: Iterable[Event]) -> Path:
    """Write a journal with these events, numbered from 1, a second apart; return its path."""
    with contextlib.closing(Journal(path)) as journal:
        for number, event in enumerate(events, 1):
            at = event.at or BEGAN + number
            journal.append(msgspec.structs.replace(event, seq=number, at=at, run_id="run"))
    return path


def damage_first_row(path: Path) -> None:
    """Overwrite the first row of a journal with bytes that are no event."""
    db = sqlite3.connect(path)
    with db:
        db.execute("update rows set data=? where seq=(select min(seq) from rows)", (b"\xff7",))
    db.close()
