"""Which requests are recorded, and how much is kept."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ajet_swarm.runtime import Chance
from core.bus import Bus
from core.events import AnswerReturned, GroupClosed, GroupEvent, GroupOpened
from core.journal.writer import Journal
from core.state import Group, Server
from proxy.dialects.client_marks import trace_context_of
from proxy.telemetry import service
from proxy.telemetry.service import Recorder


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(Journal(tmp_path / "j.db"), "run")


def open_group(bus: Bus, name: str, traceparent: str = "") -> None:
    bus.publish(
        GroupOpened(
            group_id=name, request_id="r", task_id="t", n=1, query="", body={},
            traceparent=traceparent,
        )
    )  # fmt: skip


class Kept:
    """The groups that a recorder hands over, each with the kinds of its events."""

    def __init__(self) -> None:
        self.groups: dict[str, list[str]] = {}

    def write_group(self, group: Group, events: list[GroupEvent], server: Server | None) -> None:
        self.groups[group.group_id] = [type(event).__name__ for event in events]


def listen(bus: Bus, share: float) -> Kept:
    kept: Any = Kept()
    Recorder(bus, share, Chance(Random(1)), kept)
    return kept  # type: ignore[no-any-return]  # stands in for the writer


def close_group(bus: Bus, name: str) -> None:
    bus.publish(AnswerReturned(group_id=name, index=0, why="winner", waited=0.1))
    bus.publish(GroupClosed(group_id=name, phase="DONE"))


def test_a_share_of_the_requests_is_kept(bus: Bus) -> None:
    kept = listen(bus, 0.25)
    for number in range(200):
        open_group(bus, str(number))
        close_group(bus, str(number))
    assert 30 < len(kept.groups) < 70


@pytest.mark.parametrize(("flags", "share", "sampled"), [("01", 0.0, 1), ("00", 1.0, 0)])
def test_a_client_decides_on_its_own_trace(
    bus: Bus, flags: str, share: float, sampled: int
) -> None:
    kept = listen(bus, share)
    open_group(bus, "a", f"00-{'a' * 32}-{'b' * 16}-{flags}")
    close_group(bus, "a")
    assert len(kept.groups) == sampled


def test_records_of_open_groups_are_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_OPEN", 2)
    kept = listen(bus, 1.0)
    for name in "abc":
        open_group(bus, name)
    for name in "ca":
        close_group(bus, name)
    assert kept.groups == {"a": ["GroupOpened", "AnswerReturned", "GroupClosed"]}
    open_group(bus, "d")
    close_group(bus, "d")
    assert "d" in kept.groups


@pytest.mark.parametrize(
    ("parent", "valid"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True),
        (f"01-{'a' * 32}-{'b' * 16}-01-more", True),
        (f"ff-{'a' * 32}-{'b' * 16}-01", False),
        (f"00-{'0' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'0' * 16}-01", False),
        (f"00-{'A' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'b' * 16}-01x", False),
        ("\x1b[31m", False),
    ],
)
def test_only_a_valid_trace_context_is_kept(parent: str, valid: bool) -> None:
    headers = {"traceparent": parent, "tracestate": "a=1"}
    kept, state = trace_context_of(headers)
    assert (bool(kept), bool(state)) == (valid, valid)
    assert len(kept) in (0, 55)


def test_a_tracestate_that_is_too_long_or_hostile_is_left_out() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    for state in ("a=" + "x" * 600, "a=\x1b[31m", "a=\n"):
        assert trace_context_of({"traceparent": parent, "tracestate": state}) == (parent, "")
