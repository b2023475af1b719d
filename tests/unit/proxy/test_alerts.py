"""Alerts name their groups, have current figures, and go with their cause."""

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import proxy.servers.watch
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from ajet_swarm.runtime import Clock as RuntimeClock
from ajet_swarm.runtime import Runtime
from console.session.group_facts import verdict
from core.bus import Bus
from core.events import AlertCleared, AlertRaised, Checkpoint, Event, GroupLost
from core.events.alerts import KINDS, AlertParams, params_of
from core.journal.writer import Journal
from core.state import Group, Rating, State
from proxy.alerts import GROUPS, clear_alert, dismiss_alert, expire, replace_alert, show_alert
from proxy.main import _announce
from proxy.servers.losses import ABSENT_FOR, RestartLoss
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm


def note(text: str) -> AlertParams:
    """Parameters of some alert, with that cause."""
    return params_of("journal_file", notice=text)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus(tmp_path: Path, clock: Callable[[], float]) -> Iterator[Bus]:
    journal = Journal(tmp_path / "j.db")
    yield Bus(journal, "run", State(), clock)
    journal.close()


@pytest.fixture
def alert_events(bus: Bus) -> list[Event]:
    events: list[Event] = []
    bus.listen(lambda event, _: events.append(event), AlertRaised, AlertCleared)
    return events


def test_new_figures_keep_age_and_place(bus: Bus, clock: Clock, alert_events: list[Event]) -> None:
    show_alert(bus, "a", note("1 group"), groups=["g1"])
    show_alert(bus, "b", note("another"))
    clock.now += 60
    show_alert(bus, "a", note("2 groups"), groups=["g1", "g2"])
    show_alert(bus, "a", note("2 groups"), groups=["g1", "g2"])
    alert = bus.state.alerts["a"]
    assert (cause_of(alert), alert.groups) == ("2 groups", ("g1", "g2"))
    assert (alert.at, bus.state.alerts_since["a"]) == (1_060.0, 1_000.0)
    assert list(bus.state.alerts) == ["a", "b"]
    assert len(alert_events) == 3


def test_the_newest_groups_are_named(bus: Bus) -> None:
    show_alert(bus, "a", note("many"), groups=[f"g{at}" for at in range(GROUPS + 5)])
    assert bus.state.alerts["a"].groups[0] == "g5"
    assert len(bus.state.alerts["a"].groups) == GROUPS


def test_a_dismissed_alert_comes_back_with_its_cause_or_as_an_error(bus: Bus) -> None:
    show_alert(bus, "a", note("one"))
    dismiss_alert(bus, "a")
    show_alert(bus, "a", note("two"))
    assert not bus.state.alerts
    show_alert(bus, "a", note("three"), level="error")
    assert cause_of(bus.state.alerts["a"]) == "three"
    dismiss_alert(bus, "a")
    show_alert(bus, "a", note("four"), level="error")
    assert not bus.state.alerts
    clear_alert(bus, "a")
    show_alert(bus, "a", note("five"))
    assert cause_of(bus.state.alerts["a"]) == "five"


def test_nothing_is_published_to_clear_nothing(bus: Bus, alert_events: list[Event]) -> None:
    clear_alert(bus, "a")
    assert not alert_events


@pytest.mark.parametrize("kind", sorted(name for name, kind in KINDS.items() if kind.lasts))
def test_alerts_about_past_events_expire(kind: str, bus: Bus, clock: Clock) -> None:
    lasts = KINDS[kind].lasts or 0.0
    fields = msgspec.structs.fields(KINDS[kind])
    past = params_of(kind, **{field.name: field.type() for field in fields if field.required})
    show_alert(bus, f"{kind}:s", past)
    show_alert(bus, "lost:s", params_of("lost", server="s", error="it does not answer"))
    clock.now += lasts - 1
    replace_alert(bus, f"{kind}:s", past)
    assert bus.state.alerts[f"{kind}:s"].at == clock.now
    clock.now += lasts
    expire(bus)
    assert set(bus.state.alerts) == {f"{kind}:s", "lost:s"}
    clock.now += 2
    expire(bus)
    assert set(bus.state.alerts) == {"lost:s"}


@pytest.mark.slow
@pytest.mark.world(settings(proxy={"repeats": 20}), batch=2, slots=20)
async def test_more_candidates_than_room_is_no_alert_once_they_fit(w: World) -> None:
    assert (await w.reply(await w.ask("hi"))).answers
    await w.closed()
    assert "room:s" in w.state.alerts
    w.swarm.batch = 8
    await w.server.watcher.poll_pool()
    assert (await w.reply(await w.ask("once more"))).answers
    await w.closed()
    assert "room:s" not in w.state.alerts


@pytest.mark.slow
@pytest.mark.world(watched=True)
async def test_the_alert_of_a_failed_start_ends_when_the_engine_rolls(w: World) -> None:
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")
    w.swarm.set_state("OFFLINE")
    await w.until(lambda: w.state.servers["s"].state == "OFFLINE")
    start = params_of("start", server="s", error="no job")
    show_alert(w.context.bus, "start:s", start, level="error")
    refused = params_of("refused", server="s", state="CANNOT_CONNECT")
    show_alert(w.context.bus, "refused:s", refused)
    await w.until(lambda: "is OFFLINE" in cause_of(w.state.alerts["refused:s"]))
    w.swarm.set_state("ROLLING")
    await w.until(lambda: not w.state.alerts)


@pytest.mark.slow
@pytest.mark.world(
    settings(rating={"mode": "hold", "window": 30.0}), watched=True, batch=1, repeat=2
)
async def test_an_alert_names_the_open_ratings(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.servers.watch, "CHECK_EVERY", 0.05)
    w.console()
    _, group = await w.held("hello")
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: "hold:s" in w.state.alerts)
    assert w.state.alerts["hold:s"].groups == (group.group_id,)
    await w.commands.rate(group.group_id, "best", (0,), (), "ann", "")
    await w.until(lambda: "hold:s" not in w.state.alerts)
    assert group.phase == "AWAITING_RATING"  # the vote can be undone, and is not sent yet


async def test_another_port_than_the_configured_one_raises_an_alert(w: World) -> None:
    await _announce(w.context, "http://127.0.0.1:8000", "")
    assert not w.state.alerts
    await _announce(w.context, "http://127.0.0.1:8001", "")
    alert = w.state.alerts["port"]
    assert cause_of(alert) == ("port 8000 is taken: the fake vLLM listens on http://127.0.0.1:8001")
    assert "http://127.0.0.1:8001/v1" in todo_of(alert)
    assert w.state.proxy_url == "http://127.0.0.1:8001"


@pytest.mark.world(settings(rating={"mode": "hold"}), batch=2, repeat=4)
async def test_a_restart_names_what_it_lost_at_once(w: World) -> None:
    w.console()
    _, group = await w.held("hello")
    server = w.state.servers["s"]
    server.step = 3
    done = replace(
        group, group_id="done", phase="SEALED", sealed_at=1.0, step=3, engine_run=server.engine_run
    )
    w.state.groups["done"] = done
    w.state.groups["before"] = replace(done, group_id="before", step=2)
    watch = RestartLoss(w.context, w.server, keeps_tokens=False)
    up = ServerStatus(state=EngineState.ROLLING, reachable=True, error="", down=False)
    unreachable = ServerStatus(state=EngineState.ROLLING, error="gone: refused", trouble="gone")
    back = ServerStatus(
        state=EngineState.OFFLINE, reachable=True, error="", trouble="restarted", down=False
    )
    for status in (up, unreachable, unreachable, back, back):
        watch.on_status(status)
    alert = w.state.alerts["tokens:s"]
    assert cause_of(alert) == (
        "s was restarted. Lost: 4 claimed episodes, the answers of 1 open group, "
        "1 finished group of this update"
    )
    assert "A asks one again; open ones get new episodes" in todo_of(alert)
    assert alert.groups == (group.group_id, "done")
    assert len([one for one in w.kinds(AlertRaised) if one.key == "tokens:s"]) == 1
    marks = [(one.group_id, one.cause) for one in w.kinds(GroupLost)]
    assert marks == [("done", "an engine restart")]
    assert w.state.groups["done"].lost == "an engine restart"
    assert not w.state.groups["before"].lost


@pytest.mark.parametrize(("source", "votes"), [("human", " (1 human-rated)"), ("auto", "")])
async def test_a_restart_loses_a_vote_that_was_sent_and_none_that_came_late(
    tmp_path: Path, source: str, votes: str
) -> None:
    async with ScriptedSwarm(batch=2, repeat=4) as swarm, world(tmp_path, swarm) as w:
        waiter = await w.ask("hello")
        await w.reply(waiter)
        await w.closed()
        group, server = w.group(waiter), w.state.servers["s"]
        group.source, group.rating = source, Rating(rating="best", rewards=(0, 1, 0, 0))
        server.state, server.step = "ROLLING", group.step
        watch = RestartLoss(w.context, w.server, keeps_tokens=False)
        watch.on_status(ServerStatus(state=EngineState.ROLLING, trouble="gone"))
        back = ServerStatus(state=EngineState.OFFLINE, reachable=True, trouble="restarted")
        watch.on_status(back)
        cause = cause_of(w.state.alerts["tokens:s"])
        assert cause.endswith(f"1 finished group of this update{votes}")


@pytest.mark.parametrize(
    ("before", "lost", "after", "cause"),
    [
        ("ROLLING", "", EngineState.OFFLINE, "an engine stop"),
        ("ROLLING_POST", "", EngineState.OFFLINE, "an engine stop"),
        ("ROLLING", "", EngineState.BOOTING, "an engine restart"),
        ("ROLLING", "not asked yet", EngineState.OFFLINE, ""),  # its update may have been done
        ("WEIGHT_SYNCING", "", EngineState.OFFLINE, ""),
        ("OFFLINE", "", EngineState.BOOTING, ""),
    ],
)
@pytest.mark.world(batch=2, repeat=4)
async def test_a_stop_before_the_update_marks_the_finished_groups(
    w: World, before: str, lost: str, after: EngineState, cause: str
) -> None:
    group, _ = await w.complete("hello")
    server = w.state.servers["s"]
    server.state, server.step, server.lost = before, group.step, lost
    watch = RestartLoss(w.context, w.server, keeps_tokens=False)
    watch.on_status(ServerStatus(state=after, reachable=True, error="", down=False))
    assert group.lost == cause


class _TwoProxies:
    """A group that one proxy finished, and the proxy that runs after it."""

    def __init__(self, w: World, group: Group, clock: Clock) -> None:
        self.w, self.group, self.clock = w, group, clock
        context = dataclasses.replace(w.context, runtime=Runtime(RuntimeClock(wall=clock)))
        self.watch = RestartLoss(context, w.server, keeps_tokens=True)
        self.server = w.state.servers["s"]
        self.server.state, self.server.step = "ROLLING", group.step  # as the journal has it
        self.server.lost, self.server.seen_at = "not asked yet", None

    def answer(
        self,
        state: str,
        step: int,
        pool: PoolInfo | None = None,
        *,
        reads: bool = False,
        seconds: float = 1.0,
    ) -> None:
        """The server reports this, and the alerts that depend on time are checked."""
        self.clock.now += seconds
        status = ServerStatus(
            state=EngineState[state], step=step, reachable=True, error="", down=False
        )
        self.watch.on_status(status)
        self.server.state, self.server.lost = state, ""
        self.watch.check(status, pool, self.clock.now, knows_checkpoints=reads)

    def pool(self, *uuids: str) -> PoolInfo:
        return PoolInfo(
            engine_status="ENGINE.ROLLING",
            completed_episodes=len(uuids),
            completed_tasks_details={"t": list(uuids)} if uuids else {},
        )

    def cause(self) -> str:
        """Why the group is lost; empty if it is not."""
        return str(self.group.lost)

    @property
    def ours(self) -> list[str]:
        return [one.episode_uuid for one in self.group.candidates]


@pytest.fixture
async def both(tmp_path: Path, clock: Clock) -> AsyncIterator[_TwoProxies]:
    async with ScriptedSwarm(batch=2, repeat=4) as swarm, world(tmp_path, swarm) as w:
        group, _ = await w.complete("hello")
        group.step = 3
        yield _TwoProxies(w, group, clock)


@pytest.mark.parametrize(("saved", "is_lost"), [(2, True), (3, False), (None, True), (-1, False)])
async def test_an_engine_found_off_lost_the_groups_that_its_saved_weights_lack(
    both: _TwoProxies, saved: int | None, is_lost: bool
) -> None:
    if saved is None:
        both.server.checkpoints = ()
    else:
        latest = Checkpoint(name="latest", step=saved, at=1.0, damaged=saved < 0)
        both.server.checkpoints = (latest,)
    both.answer("OFFLINE", 0)
    assert not both.cause(), "its checkpoints were not read yet"
    both.answer("OFFLINE", 0, reads=True)
    assert both.cause() == ("an engine restart" if is_lost else "")
    assert ("tokens:s" in both.w.state.alerts) is is_lost
    if is_lost:
        alert = both.w.state.alerts["tokens:s"]
        assert "1 finished group of this update" in cause_of(alert)
        assert alert.groups == (both.group.group_id,)
        both.answer("ROLLING", 3, both.pool())
        assert len(both.w.kinds(GroupLost)) == 1


@pytest.mark.parametrize(
    ("step", "is_lost"), [(1, True), (3, True), (4, False)], ids=["reset", "same", "trained"]
)
async def test_an_engine_without_checkpoints_is_decided_when_it_rolls_again(
    both: _TwoProxies, step: int, is_lost: bool
) -> None:
    both.answer("OFFLINE", 0, reads=True)
    both.answer("BOOTING", 0, reads=True)
    assert not both.cause(), "an update may have been done"
    both.answer("ROLLING", step)
    assert not both.cause(), "its pool is not known"
    both.answer("ROLLING", step, both.pool("another"))
    assert bool(both.cause()) is is_lost
    assert ("tokens:s" in both.w.state.alerts) is is_lost


async def test_an_engine_that_kept_running_lost_nothing(both: _TwoProxies) -> None:
    for _ in range(30):
        both.answer("ROLLING", 3, both.pool(*both.ours))
    assert not both.cause()
    assert not both.w.state.alerts


async def test_an_engine_whose_pool_cannot_be_read_lost_nothing(both: _TwoProxies) -> None:
    unknown = PoolInfo(engine_status="ENGINE.ROLLING", completed_episodes=None)
    untold = PoolInfo(engine_status="ENGINE.ROLLING", completed_episodes=4)
    for pool in (None, unknown, untold, PoolInfo(engine_status="ENGINE.OFFLINE")):
        for _ in range(30):
            both.answer("ROLLING", 3, pool)
    assert not both.cause()
    assert not both.w.state.alerts


@pytest.mark.parametrize("others", [(), ("another",)])
async def test_an_engine_that_rolls_again_unseen_is_known_by_its_pool(
    both: _TwoProxies, others: tuple[str, ...]
) -> None:
    both.answer("ROLLING", 3, both.pool(*others))
    both.answer("ROLLING", 3, both.pool(*others), seconds=ABSENT_FOR - 1)
    assert not both.cause(), "the server may report a finished episode late"
    both.answer("ROLLING", 3, both.pool(*others), seconds=2)
    assert both.cause() == "an engine restart"
    assert "tokens:s" in both.w.state.alerts


async def test_a_late_episode_in_the_pool_ends_the_doubt(both: _TwoProxies) -> None:
    both.answer("ROLLING", 3, both.pool())
    both.answer("ROLLING", 3, both.pool(both.ours[-1]))
    both.answer("ROLLING", 3, both.pool(), seconds=60)
    assert not both.cause()


@pytest.mark.parametrize("state", ["WEIGHT_SYNCING", "WEIGHT_EXPORTING"])
async def test_an_update_in_progress_trains_on_them(both: _TwoProxies, state: str) -> None:
    both.answer(state, 3)
    both.answer("ROLLING", 3, both.pool(), seconds=60)
    both.answer("ROLLING", 3, both.pool(), seconds=60)
    assert not both.cause()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False])
async def test_a_proxy_started_after_both_were_stopped_marks_what_is_lost(
    tmp_path: Path, stopped: bool
) -> None:
    async with ScriptedSwarm(batch=4, repeat=4) as swarm:
        async with world(tmp_path, swarm, watched=True) as w:
            group, _ = await w.complete("hello")
            await w.until(lambda: w.state.servers["s"].state == "ROLLING")
            group_id = group.group_id
        if stopped:
            swarm.set_state("OFFLINE", 0)
        async with world(tmp_path, swarm, watched=True) as w:
            await w.until(lambda: not w.state.servers["s"].lost)
            if stopped:
                swarm.set_state("ROLLING", 1)
                await w.until(lambda: "tokens:s" in w.state.alerts)
                assert w.state.groups[group_id].discarded
                assert verdict(w.state.groups[group_id]).text == (
                    "finished, lost by an engine restart: will not train"
                )
            else:
                await w.until(lambda: w.state.servers["s"].pool)
                assert w.state.servers["s"].pool.completed_tasks == 1
                assert not w.state.groups[group_id].lost
