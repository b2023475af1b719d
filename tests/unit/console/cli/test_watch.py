"""The feed by line: what it prints, where it resumes, when it ends."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ajet_swarm.common.errors import UsageError
from console.cli.watch import EventFilter, Follower, JsonOutput, TextOutput, known_kinds
from core.events import (
    EVENT_KINDS,
    CandidateScore,
    EngineChanged,
    Event,
    GroupEvent,
    GroupNoted,
    GroupScored,
    GroupSealed,
    Part,
    UpdateDone,
    WhatIfChanged,
)
from core.events.alerts import params_of
from core.reducer import reduce
from core.state import State
from proxy.alerts import alert_raised
from proxy.control.client import ControlLost, Reset
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.commands.cli import Cli
from tests.support.sample import HOSTILE, group_events, stamp, state_of


class Proxy:
    """A feed of events, some of which were before the snapshot."""

    def __init__(self, *events: Event) -> None:
        self.events_ = [stamp(event, at) for at, event in enumerate(events, 1)]
        self.known = 0
        self.requested_after: list[int] = []
        self.cut_after: int | None = None
        self.reset = False

    async def snapshot(self) -> State:
        state = State(run_id="run-1")
        for event in self.events_[: self.known]:
            reduce(state, event)
        return state

    async def events(self, after: int, run_id: str = "") -> AsyncIterator[Any]:
        self.requested_after.append(after)
        if self.reset:
            self.reset = False
            yield Reset()
        for event in self.events_:
            if event.seq > after:
                yield event
                if event.seq == self.cut_after:
                    self.cut_after = None
                    raise ControlLost("the proxy closed the feed")


class LineRecorder:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def __call__(self, lines: list[bytes]) -> None:
        self.lines += lines

    @property
    def kinds(self) -> list[str]:
        return [json.loads(line)["kind"] for line in self.lines]


def _follower(
    recorder: LineRecorder, line: str | None = None, until: str | None = None, **more: Any
) -> Follower:
    wanted = EventFilter(line, more.pop("kinds", ()), until)
    return Follower(wanted, more.pop("form", JsonOutput()), write=recorder, **more)


async def test_the_output_is_a_snapshot_followed_by_the_journals_events() -> None:
    proxy, recorder = Proxy(*group_events(1)), LineRecorder()
    proxy.known = 2
    await _follower(recorder).follow(proxy)
    assert recorder.kinds[0] == "snapshot"
    assert json.loads(recorder.lines[0])["seq"] == 2
    assert [json.loads(line)["seq"] for line in recorder.lines[1:]] == [
        event.seq for event in proxy.events_[2:]
    ]


@pytest.mark.parametrize("full", [False, True])
async def test_the_snapshot_is_a_summary_unless_full_is_given(full: bool) -> None:
    events = [event for number in range(60) for event in group_events(number)]
    proxy, recorder = (
        Proxy(EngineChanged(server="gpu", state="ROLLING", step=3), *events),
        LineRecorder(),
    )
    proxy.known = len(proxy.events_)
    await _follower(recorder, form=JsonOutput(full=full)).follow(proxy)
    state = json.loads(recorder.lines[0])["state"]
    assert (len(recorder.lines[0]) > 100_000) is full
    assert full or len(recorder.lines[0]) < 4_096
    assert (state["servers"]["gpu"]["state"], state["servers"]["gpu"]["step"]) == ("ROLLING", 3)
    assert state["totals"]["groups"] == 60
    if not full:
        assert state["groups"] == 60
        assert state["open_groups"] == state["waiting"] == []


async def test_after_an_interruption_no_event_is_printed_twice() -> None:
    proxy, recorder = Proxy(*group_events(1)), LineRecorder()
    proxy.cut_after = 4
    follower = _follower(recorder, until="group_closed")
    with pytest.raises(ControlLost):
        await follower.follow(proxy)
    assert await follower.follow(proxy)
    assert proxy.requested_after == [0, 4]
    seqs = [json.loads(line).get("seq") for line in recorder.lines[1:]]
    assert seqs == sorted(set(seqs))
    assert recorder.kinds.count("snapshot") == 1


async def test_a_reset_prints_the_snapshot_again() -> None:
    proxy, recorder = Proxy(*group_events(1)), LineRecorder()
    proxy.reset = True
    await _follower(recorder).follow(proxy)
    assert recorder.kinds[:2] == ["snapshot", "snapshot"]


async def test_after_starts_without_a_snapshot() -> None:
    proxy, recorder = Proxy(*group_events(1)), LineRecorder()
    proxy.known = len(proxy.events_)
    await _follower(recorder, after=3).follow(proxy)
    assert "snapshot" not in recorder.kinds
    assert json.loads(recorder.lines[0])["seq"] == 4


async def test_until_ends_after_the_event() -> None:
    proxy, recorder = (
        Proxy(*group_events(1), EngineChanged(server="gpu", state="ROLLING")),
        LineRecorder(),
    )
    assert await _follower(recorder, until="group_scored").follow(proxy)
    assert recorder.kinds[-1] == "group_scored"
    assert not await _follower(LineRecorder(), until="group_closed:FAILED").follow(proxy)
    assert await _follower(LineRecorder(), until="engine-changed:rolling").follow(proxy)
    proxy.known = len(proxy.events_)  # it is there already
    assert await _follower(LineRecorder(), until="engine_changed:ROLLING").follow(proxy)


async def test_until_is_satisfied_by_a_finished_what_if() -> None:
    proxy = Proxy(WhatIfChanged(what="length 0.1", phase="done"))
    proxy.known = 1
    assert await _follower(LineRecorder(), until="what_if_changed:done").follow(proxy)
    proxy = Proxy(WhatIfChanged(what="length 0.1"))
    proxy.known = 1
    assert not await _follower(LineRecorder(), until="what_if_changed:done").follow(proxy)


async def test_a_filter_prints_only_events_of_matching_groups() -> None:
    proxy = Proxy(
        *group_events(1, query="about paris"),
        *group_events(2, query="about rome"),
        EngineChanged(server="gpu", state="ROLLING"),
    )
    recorder = LineRecorder()
    await _follower(recorder, "query~paris").follow(proxy)
    ids = {json.loads(line).get("group_id") for line in recorder.lines[1:]}
    assert ids == {"g0001"}
    recorder = LineRecorder()
    await _follower(recorder, kinds=["group_opened,group_closed"]).follow(proxy)
    assert set(recorder.kinds) == {"snapshot", "group_opened", "group_closed"}


def test_an_unknown_event_kind_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="Did you mean `group_closed`"):
        EventFilter(None, ["group_close"], None)
    with pytest.raises(UsageError, match="no field"):
        EventFilter("nonsense<3", (), None)


async def test_text_output_has_one_safe_line_per_event() -> None:
    proxy = Proxy(*group_events(1, query=HOSTILE), GroupNoted(group_id="g0001", note=HOSTILE))
    recorder = LineRecorder()
    await _follower(recorder, form=TextOutput()).follow(proxy)
    text = b"\n".join(recorder.lines).decode()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "will train" in text
    assert all(len(line.decode()) < 260 for line in recorder.lines)


def test_every_event_has_a_line_or_is_omitted_on_purpose() -> None:
    from console.views.events import _LINES

    silent = {"claim_intended"}
    silent |= {"episodes_claimed", "episodes_ended", "group_leased"}
    result = {str(one.__struct_config__.tag) for one in _LINES}
    others = set(known_kinds()) - result - silent
    assert result <= set(known_kinds())
    assert not others & {str(one.__struct_config__.tag) for one in _GROUP_KINDS}


_GROUP_KINDS = [one for one in EVENT_KINDS if issubclass(one, GroupEvent)]


async def test_a_closed_pipe_ends_the_command() -> None:
    def broken(_: list[bytes]) -> None:
        raise BrokenPipeError

    follower = Follower(EventFilter(None, (), None), JsonOutput(), write=broken)
    with pytest.raises(BrokenPipeError):
        await follower.follow(Proxy(*group_events(1)))


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_an_invalid_timeout_is_wrong_use(cli: Cli, seconds: str, tmp_path: Path) -> None:
    assert "not a time" in cli.refused("watch", "--home", tmp_path, f"--timeout={seconds}")


async def test_a_low_score_is_printed_with_its_cause() -> None:
    part = Part("refusal", 0.0, gate=True, reason="declines to answer")
    scored = GroupScored(
        group_id="g1", scores=(CandidateScore(0, 0.0, (part,)), CandidateScore(1, 0.5)),
        best=1, version="v", seconds=0.1,
    )  # fmt: skip
    line = TextOutput().event(scored, State())[0].decode()
    assert line.endswith("scored 0.00 0.50, best 2 (1 refusal: declines to answer)")


async def test_an_update_with_human_ratings_names_automatic_and_human_figures() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    for event in group_events(1):
        if isinstance(event, GroupSealed):
            best = [replace(one, reward=float(one.index == 1)) for one in event.rewards]
            event = replace(event, source="human", rewards=tuple(best))
        events.append(event)
    proxy = Proxy(*events, UpdateDone(server="embedded", step=1, stats={"reward_mean": 0.25}))
    recorder = LineRecorder()
    await _follower(recorder, form=TextOutput()).follow(proxy)
    wanted = "mean reward sent 0.25, automatic 0.4, human-rated groups 1, winner 1"
    assert wanted in b"\n".join(recorder.lines).decode()


RAISED = alert_raised("lost:gpu", params_of("lost", server="gpu", error="gone"), level="error")


@pytest.mark.parametrize("full", [False, True])
def test_json_has_the_sentences_of_an_alert_beside_its_data(full: bool) -> None:
    state = State()
    reduce(state, RAISED)
    (line,) = JsonOutput(full=full).snapshot(state)
    (event,) = JsonOutput().event(RAISED, state)
    for alert in (json.loads(line)["state"]["alerts"]["lost:gpu"], json.loads(event)):
        assert alert["cause"] == "gpu does not answer: gone"
        assert alert["alert_kind"] == "lost"
        assert alert["params"] == {"server": "gpu", "error": "gone"}
    assert state.alerts["lost:gpu"].cause == ""


def test_text_output_has_the_sentences_of_an_alert() -> None:
    state = State()
    reduce(state, RAISED)
    (event,) = TextOutput().event(RAISED, state)
    assert "gpu does not answer: gone. Check that it runs" in event.decode()
    assert "gpu does not answer: gone" in TextOutput().snapshot(state)[-1].decode()
    refused = alert_raised("refused:gpu", params_of("refused", server="gpu", state="OFFLINE"))
    (event,) = TextOutput({"engine.start": "ctrl+g"}).event(refused, state)
    assert "`Ctrl+G` starts it" in event.decode()


@pytest.mark.parametrize("votes", [0, 1, 2])
def test_a_snapshot_has_what_open_ratings_hold_up_after_the_votes(votes: int) -> None:
    state = state_of(*two_hold_up(votes))
    expected = [TWO_HOLD_UP[votes]] if TWO_HOLD_UP[votes] else []
    for full in (False, True):
        (line,) = JsonOutput(full=full).snapshot(state)
        alerts = json.loads(line)["state"]["alerts"].values()
        assert [one["cause"] for one in alerts] == expected
    lines = [one.decode() for one in TextOutput().snapshot(state) if b"hold" in one]
    assert len(lines) == len(expected)
    assert all(TWO_HOLD_UP[votes] in one for one in lines)
