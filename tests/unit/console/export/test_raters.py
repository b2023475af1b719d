"""Exports of groups with the votes of several raters."""

from typing import Any

import pytest
from msgspec.structs import replace

from console.export.records import rater_hash
from core.events import (
    DisagreementSettled,
    EpisodesEnded,
    GroupClosed,
    GroupRated,
    GroupSealed,
    VoteCast,
    VoteWithdrawn,
)
from core.state.common import record_of
from tests.support.ranked import ranked_group
from tests.unit.console.export.conftest import Exporter

NAMES: dict[str, Any] = {"group_id": "g", "server": "embedded"}
MEAN = {"rating": "scores", "rater": "ada, bob", "raters": ("ada", "bob"), "blind": True}


def vote(rater: str, *rewards: float) -> VoteCast:
    """A vote with these rewards."""
    return VoteCast(**NAMES, rating="scores", rewards=rewards, rater=rater)


def voted(*more: Any) -> list[Any]:
    """A group that was sent with the mean of two votes, and what came after its end."""
    events = ranked_group(
        "g", answers=["a", "b", "c"], rewards=[0.1, 0.2, 0.9], vote=MEAN, human=[0.5, 0.5, 0.0]
    )
    votes = [
        vote("ada", 1.0, 0.0, 0.0),
        vote("eve", 0.0, 0.0, 1.0),
        VoteWithdrawn(**NAMES, rater="eve"),
        vote("bob", 0.0, 1.0, 0.0),
    ]
    return [*events[:4], *votes, *events[4:], *more]


def test_each_vote_is_exported_without_the_names_of_its_raters(exported: Exporter) -> None:
    (row,), _ = exported("jsonl", voted())
    pseudonyms = [rater_hash("ada"), rater_hash("bob")]
    assert row["vote"]["raters"] == pseudonyms
    assert row["vote"]["votes"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert row["vote"]["rater"] == row["provenance"]["rater"] == ", ".join(pseudonyms)
    assert [one["human"] for one in row["answers"]] == [0.5, 0.5, 0.0]
    assert not row["vote"]["settled"]
    (named,), _ = exported("jsonl", voted(), names=True)
    assert named["vote"]["raters"] == ["ada", "bob"]


def test_a_disagreement_settled_after_sending_decides_the_preference(exported: Exporter) -> None:
    decision = DisagreementSettled(
        **NAMES, rating="best", order=(1,), rewards=(0.0, 1.0, 0.0), rater="lead", sent=True
    )
    (row,), _ = exported("preference", voted(decision))
    assert row["chosen"][0]["content"] == "b"
    assert row["provenance"]["rater"] == rater_hash("lead")
    (whole,), _ = exported("jsonl", voted(decision))
    assert whole["vote"]["settled"]
    assert [one["reward"] for one in whole["answers"]] == [0.0, 1.0, 0.0]
    assert whole["answers"][1]["advantage"] > 0 > whole["answers"][0]["advantage"]


def late(rater: str, *rewards: float) -> list[Any]:
    """A vote after the end of the group."""
    cast = vote(rater, *rewards)
    return [cast, record_of(GroupRated, cast, raters=(rater,))]


@pytest.mark.parametrize("phase", ["DONE", "ABORTED"])
def test_a_late_vote_decides_the_preference(exported: Exporter, phase: str) -> None:
    events = ranked_group("g", answers=["a", "b", "c"], rewards=[0.1, 0.2, 0.9])
    if phase == "ABORTED":
        unsent = [event for event in events if not isinstance(event, GroupSealed | EpisodesEnded)]
        events = [
            replace(event, phase=phase) if isinstance(event, GroupClosed) else event
            for event in unsent
        ]
        assert exported("preference", events)[0] == []
    (row,), _ = exported("preference", [*events, *late("ada", 0.0, 1.0, 0.0)])
    assert (row["chosen"][0]["content"], row["chosen_reward"]) == ("b", 1.0)
    assert row["provenance"]["mode"] == "human"
    (whole,), _ = exported("jsonl", [*events, *late("ada", 0.0, 1.0, 0.0)])
    assert [answer["automatic"] for answer in whole["answers"]] == [0.1, 0.2, 0.9]
    assert whole["vote"]["rater"] == rater_hash("ada")
