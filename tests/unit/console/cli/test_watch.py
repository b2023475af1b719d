"""`watch` and `status`."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ajet_swarm.common.errors import AjetError, UsageError
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
    ProxyStarted,
    UpdateDone,
    WhatIfChanged,
)
from core.events.alerts import params_of
from core.state import State, reduce
from proxy.alerts import alert_raised
from proxy.control.client import ControlLost, Reset
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.sample import HOSTILE, NOW, group_events, stamp, state_of


class Proxy:
    """A feed of events, some of which were before the snapshot."""

    def __init__(self, *events: Event, known: int = 0) -> None:
        self.events_ = [stamp(event, at) for at, event in enumerate(events, 1)]
        self.known = known
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


class Printed:
    """The lines that followers printed.

    Attributes:
        ended: Whether `until` was satisfied, of the last follower.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False

    def __call__(self, lines: list[bytes]) -> None:
        self.lines += lines

    @property
    def data(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.data]

    @property
    def text(self) -> str:
        return b"\n".join(self.lines).decode()


def follower(printed: Printed, line: str | None = None, **more: Any) -> Follower:
    wanted = EventFilter(line, more.pop("kinds", ()), more.pop("until", None))
    return Follower(wanted, more.pop("form", JsonOutput()), write=printed, **more)


async def followed(proxy: Proxy, line: str | None = None, **more: Any) -> Printed:
    printed = Printed()
    printed.ended = await follower(printed, line, **more).follow(proxy)
    return printed


async def test_the_output_is_a_snapshot_followed_by_the_journals_events() -> None:
    events = group_events(1)
    printed = await followed(Proxy(*events, known=2))
    assert printed.kinds[0] == "snapshot"
    assert [line["seq"] for line in printed.data] == list(range(2, len(events) + 1))


@pytest.mark.parametrize("full", [False, True])
async def test_the_snapshot_is_a_summary_unless_full_is_given(full: bool) -> None:
    events: list[Event] = [event for number in range(60) for event in group_events(number)]
    events.append(EngineChanged(server="gpu", state="ROLLING", step=3))
    printed = await followed(Proxy(*events, known=len(events)), form=JsonOutput(full=full))
    state = printed.data[0]["state"]
    assert (len(printed.lines[0]) > 100_000) is full
    assert full or len(printed.lines[0]) < 4_096
    assert (state["servers"]["gpu"]["state"], state["servers"]["gpu"]["step"]) == ("ROLLING", 3)
    assert state["totals"]["groups"] == 60
    if not full:
        assert state["groups"] == 60
        assert state["open_groups"] == state["waiting"] == []


async def test_after_an_interruption_no_event_is_printed_twice() -> None:
    proxy, printed = Proxy(*group_events(1)), Printed()
    proxy.cut_after = 4
    same = follower(printed, until="group_closed")
    with pytest.raises(ControlLost):
        await same.follow(proxy)
    assert await same.follow(proxy)
    assert proxy.requested_after == [0, 4]
    seqs = [line.get("seq") for line in printed.data[1:]]
    assert seqs == sorted(set(seqs))
    assert printed.kinds.count("snapshot") == 1


async def test_a_reset_prints_the_snapshot_again() -> None:
    proxy = Proxy(*group_events(1))
    proxy.reset = True
    assert (await followed(proxy)).kinds[:2] == ["snapshot", "snapshot"]


async def test_until_ends_after_the_event() -> None:
    printed = await followed(Proxy(*group_events(1)), until="group_scored")
    assert (printed.ended, printed.kinds[-1]) == (True, "group_scored")


@pytest.mark.parametrize(
    ("event", "until", "ended"),
    [
        (EngineChanged(server="gpu", state="ROLLING"), "engine_changed:ROLLING", True),
        (EngineChanged(server="gpu", state="ROLLING"), "engine-changed:rolling", True),
        (EngineChanged(server="gpu", state="ROLLING"), "group_closed:FAILED", False),
        (WhatIfChanged(what="length 0.1", phase="done"), "what_if_changed:done", True),
        (WhatIfChanged(what="length 0.1"), "what_if_changed:done", False),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
async def test_until_is_satisfied_by_what_comes_and_by_what_is_there(
    event: Event, until: str, ended: bool, is_there: bool
) -> None:
    events = [*group_events(1), event]
    known = len(events) if is_there else 0
    assert (await followed(Proxy(*events, known=known), until=until)).ended is ended


async def test_a_filter_prints_only_events_of_matching_groups() -> None:
    proxy = Proxy(
        *group_events(1, query="about paris"),
        *group_events(2, query="about rome"),
        EngineChanged(server="gpu", state="ROLLING"),
    )
    printed = await followed(proxy, "query~paris")
    assert {line.get("group_id") for line in printed.data[1:]} == {"g0001"}
    printed = await followed(proxy, kinds=["group_opened,group_closed"])
    assert set(printed.kinds) == {"snapshot", "group_opened", "group_closed"}


def test_an_unknown_event_kind_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="Did you mean `group_closed`"):
        EventFilter(None, ["group_close"], None)
    with pytest.raises(UsageError, match="no field"):
        EventFilter("nonsense<3", (), None)


async def test_text_output_has_one_safe_line_per_event() -> None:
    proxy = Proxy(*group_events(1, query=HOSTILE), GroupNoted(group_id="g0001", note=HOSTILE))
    text = (await followed(proxy, form=TextOutput())).text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "will train" in text
    assert all(len(line) < 260 for line in text.split("\n"))


def test_every_event_has_a_line_or_is_omitted_on_purpose() -> None:
    from console.views.events import _LINES

    silent = {"claim_intended", "episodes_claimed", "episodes_ended", "group_leased"}
    result = {str(kind.__struct_config__.tag) for kind in _LINES}
    of_groups = {str(k.__struct_config__.tag) for k in EVENT_KINDS if issubclass(k, GroupEvent)}
    assert result <= set(known_kinds())
    assert not (set(known_kinds()) - result - silent) & of_groups


async def test_a_closed_pipe_ends_the_command() -> None:
    def broken(_: list[bytes]) -> None:
        raise BrokenPipeError

    follower = Follower(EventFilter(None, (), None), JsonOutput(), write=broken)
    with pytest.raises(BrokenPipeError):
        await follower.follow(Proxy(*group_events(1)))


@pytest.mark.parametrize("seconds", ["-1", "nan"])
def test_an_invalid_timeout_is_wrong_use(cli: Cli, seconds: str, tmp_path: Path) -> None:
    assert "'--timeout'" in cli.refused("watch", "--home", tmp_path, f"--timeout={seconds}")


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
            best = [replace(reward, reward=float(reward.index == 1)) for reward in event.rewards]
            event = replace(event, source="human", rewards=tuple(best))
        events.append(event)
    proxy = Proxy(*events, UpdateDone(server="embedded", step=1, stats={"reward_mean": 0.25}))
    wanted = "mean reward sent 0.25, automatic 0.4, human-rated groups 1, winner 1"
    assert wanted in (await followed(proxy, form=TextOutput())).text


RAISED = alert_raised("lost:gpu", params_of("lost", server="gpu", error="gone"), level="error")


@pytest.mark.parametrize("full", [False, True])
def test_json_has_the_sentences_of_an_alert_beside_its_data(full: bool) -> None:
    state = State()
    reduce(state, RAISED)
    (line,) = JsonOutput(full=full).snapshot(state)
    (event,) = JsonOutput().event(RAISED, state)
    for alert in (json.loads(line)["state"]["alerts"]["lost:gpu"], json.loads(event)):
        assert (alert["cause"], alert["alert_kind"]) == ("gpu does not answer: gone", "lost")
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
        assert [alert["cause"] for alert in alerts] == expected
    lines = [one.decode() for one in TextOutput().snapshot(state) if b"hold" in one]
    assert len(lines) == len(expected)
    assert all(TWO_HOLD_UP[votes] in one for one in lines)


@pytest.mark.parametrize("votes", [0, 1, 2])
def test_alerts_follow_votes_that_are_not_sent_yet(
    cli: Cli, proxy: FakeControl, votes: int
) -> None:
    proxy.state = state_of(*two_hold_up(votes))
    alerts = cli.json("status")["proxy"]["alerts"].values()
    assert [alert["cause"] for alert in alerts] == (
        [TWO_HOLD_UP[votes]] if TWO_HOLD_UP[votes] else []
    )


def test_an_engine_without_a_port_has_no_address(cli: Cli, proxy: FakeControl) -> None:
    taken = {"embedded": "http://127.0.0.1:0"}
    started = ProxyStarted(
        client_uuid="c", pid=1, url="http://p", version="1", servers=taken, rewards="", at=NOW
    )

    proxy.state = state_of(started)
    shown = cli.out("status")
    assert "127.0.0.1:0" not in shown
    assert not missing(
        shown,
        "embedded  no address yet  CANNOT_CONNECT",
        "(it is not up: its port is not known yet)",
    )
    (engine,) = cli.json("status")["servers"]
    assert (engine["url"], engine["state"]) == ("", "CANNOT_CONNECT")


def test_a_proxy_whose_state_cannot_be_read_shows_no_zeros(cli: Cli, proxy: FakeControl) -> None:
    proxy.failure = AjetError("the control token is wrong")
    assert not missing(
        cli.out("status"),
        "http://proxy  its state is unknown: the control token is wrong",
        "ratings  unknown",
    )


def test_a_token_file_that_cannot_be_read_is_refused(cli: Cli, proxy: FakeControl) -> None:
    shown = cli.refused("status", "--token-file", "/gone")
    assert "--token-file /gone: the token cannot be read: No such file or directory" in shown
