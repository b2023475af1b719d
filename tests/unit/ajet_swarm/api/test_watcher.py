"""One poll per server: its period, its waiters, the status of an unreachable server."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import ajet_swarm.common.tasks as tasks_module
from ajet_swarm.api import watcher as module
from ajet_swarm.api.watcher import (
    FAST,
    LOST_AFTER,
    NORMAL,
    ServerStatus,
    Watcher,
    wait_stable_offline,
)
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import SwarmError, Unreachable
from ajet_swarm.protocol.schemas import EngineState, EngineStatus, PoolInfo
from tests.support.capped_clock import loop_time, skip
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import FROZEN, GONE, Clock, ScriptedClient, status

# -- statuses -----------------------------------------------------------------------------------


async def test_before_the_first_poll_the_status_is_unknown(watch: Watcher) -> None:
    current = watch.current
    assert (current.state, current.reachable, current.seen_at) == (
        EngineState.CANNOT_CONNECT,
        False,
        0,
    )


async def test_since_is_the_time_at_which_the_state_began(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    first = await watch.poll()
    second = await watch.poll()
    assert second.since == first.since == 1001
    assert second.seen_at == 1002
    scripted.next_status = status("WEIGHT_SYNCING")
    third = await watch.poll()
    assert (third.state, third.since) == (EngineState.WEIGHT_SYNCING, 1003)


async def test_a_boundary_post_without_step_keeps_the_step(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = status("ROLLING_POST", 7)
    await watch.poll()
    scripted.next_status = status("WEIGHT_SYNCING", None)
    assert (await watch.poll()).step == 7
    scripted.next_status = status("OFFLINE", None)
    assert (await watch.poll()).step is None


async def test_an_unknown_state_is_shown_as_it_is(scripted: ScriptedClient, watch: Watcher) -> None:
    scripted.next_status = EngineStatus("ENGINE.DREAMING", "deep", 3)
    current = await watch.poll()
    assert (current.state, current.raw, current.detail) == (
        EngineState.UNKNOWN,
        "ENGINE.DREAMING",
        "deep",
    )
    assert current.display_state is EngineState.UNKNOWN


async def test_one_missed_poll_is_normal_and_two_are_a_loss(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    await watch.poll()
    scripted.next_status = FROZEN
    first = await watch.poll()
    assert first.reachable
    assert "no answer" in first.error
    second = await watch.poll()
    assert not second.reachable
    assert (second.state, second.step) == (EngineState.ROLLING, 1)
    assert second.display_state is EngineState.CANNOT_CONNECT
    assert second.seen_at == first.seen_at == 1001
    scripted.next_status = status("ROLLING")
    back = await watch.poll()
    assert back.reachable
    assert back.error == ""
    assert back.since == 1001


async def test_one_missed_poll_between_good_ones_is_forgotten(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    for _ in range(3):
        scripted.next_status = status("ROLLING")
        await watch.poll()
        scripted.next_status = FROZEN
        assert (await watch.poll()).reachable


async def test_not_a_swarm_server(scripted: ScriptedClient, watch: Watcher) -> None:
    scripted.next_status = SwarmError("the answer was not understood")
    await watch.poll()
    current = await watch.poll()
    assert (current.display_state, current.error) == (
        EngineState.CANNOT_CONNECT,
        "unrecognized: the answer was not understood",
    )


# -- how fast -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "period"),
    [
        ("OFFLINE", NORMAL),
        ("BOOTING", FAST),
        ("ROLLING", NORMAL),
        ("ROLLING_POST", FAST),
        ("WEIGHT_SYNCING", FAST),
        ("WEIGHT_EXPORTING", NORMAL),
    ],
)
async def test_the_poll_period_depends_on_the_state(
    scripted: ScriptedClient, watch: Watcher, state: str, period: float
) -> None:
    scripted.next_status = status(state)
    await watch.poll()
    assert watch.period == period


async def test_the_poll_period_depends_on_waiting_callers(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    await watch.poll()
    assert watch.period == NORMAL
    with watch.eager(), watch.eager():
        assert watch.period == FAST
    assert watch.period == NORMAL


async def test_an_unreachable_server_is_polled_at_the_normal_period(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = GONE
    periods = []
    for _ in range(6):
        await watch.poll()
        periods.append(watch.period)
    assert periods == [FAST, *[NORMAL] * 5]
    with watch.eager():
        assert watch.period == NORMAL


async def test_idle_polling_uses_the_longest_period(
    server: ScriptedSwarm, client: SwarmWire
) -> None:
    """The loop asks at its period: no request on top of it."""
    watch = Watcher(client)
    async with Tasks("test") as tasks:
        tasks.spawn(watch.run(), "watch")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await server.until(lambda: server.requests["/get_engine_status"] >= 3)
        assert loop.time() - began >= NORMAL


# -- listeners ---------------------------------------------------------------------------------


async def test_listeners_are_only_called_on_changes(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    received: list[ServerStatus] = []
    remove = watch.add_listener(received.append)
    for value in (
        status("ROLLING"),
        status("ROLLING"),
        status("ROLLING_POST"),
        status("ROLLING_POST"),
        status("WEIGHT_SYNCING", None),
        status("WEIGHT_SYNCING", 1),
        status("ROLLING", 2),
    ):
        scripted.next_status = value
        await watch.poll()
    assert [(seen.state.value, seen.step) for seen in received] == [
        ("ROLLING", 1),
        ("ROLLING_POST", 1),
        ("WEIGHT_SYNCING", 1),
        ("ROLLING", 2),
    ]
    remove()
    remove()
    scripted.next_status = GONE
    await watch.poll()
    assert len(received) == 4


async def test_a_failing_listener_does_not_affect_others(
    scripted: ScriptedClient, watch: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[ServerStatus] = []

    def broken(_: ServerStatus) -> None:
        raise ZeroDivisionError

    watch.add_listener(broken)
    watch.add_listener(received.append)
    await watch.poll()
    assert len(received) == 1
    assert "a listener failed" in caplog.text


async def test_an_unexpected_error_of_a_poll_does_not_end_the_watcher(
    server: ScriptedSwarm,
    watcher: Watcher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever fails in a poll: the request, the status, the pool, the test of a waiter."""
    broken = True

    def fails(original: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*args: Any, **kwargs: Any) -> Any:
            if broken:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return original(*args, **kwargs)

        return maybe

    monkeypatch.setattr(tasks_module, "RESTART_AFTER", 0.01)
    monkeypatch.setattr(module, "POOL", 0.01)
    server.automatic = False
    for owner, name in ((watcher.client, "pool"), (watcher.client, "status"), (watcher, "_cause")):
        broken = True
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails(getattr(owner, name)))
            if name != "pool":
                seen = await watcher.wait_for(lambda seen: not seen.reachable, 60)
                assert (seen.trouble, seen.error) == (
                    "faulty",
                    "faulty: RuntimeError: cannot schedule new futures after shutdown",
                )
            server.set_state("BOOTING")
            broken = False
            await watcher.wait_for({EngineState.BOOTING}, 60)
            server.set_state("ROLLING", 3)
            read_at = watcher.pool_at
            await watcher.wait_for(lambda _, last=read_at: watcher.pool_at > last, 60)
    assert "Traceback" in caplog.text
    assert caplog.text.count("a poll of ") == 2, "once for each fault, not with each poll"


async def test_a_test_that_raises_fails_its_own_wait_alone(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = status("BOOTING")
    await watch.poll()

    def broken(seen: ServerStatus) -> bool:
        return seen.state is EngineState.ROLLING and 1 // 0 > 0

    async with asyncio.TaskGroup() as group:
        failing = group.create_task(_error_of(watch.wait_for(broken)))
        waiting = group.create_task(watch.wait_for({EngineState.ROLLING}))
        await asyncio.sleep(0)
        scripted.next_status = status("ROLLING")
        await watch.poll()
    assert isinstance(failing.result(), ZeroDivisionError)
    assert waiting.result().state is EngineState.ROLLING


async def test_the_waits_of_a_script_end_with_the_error_of_a_poll(
    scripted: ScriptedClient,
) -> None:
    watch = Watcher(scripted, Clock(), fails_waits=True)
    async with asyncio.TaskGroup() as group:
        waits = [
            group.create_task(_error_of(watch.wait_for({EngineState.ROLLING}))) for _ in range(3)
        ]
        await asyncio.sleep(0)
        scripted.next_status = ZeroDivisionError("division by zero")
        await watch.poll()
    for wait in waits:
        assert isinstance(error := wait.result(), SwarmError)
        assert "faulty: ZeroDivisionError: division by zero" in str(error)


async def test_no_wait_outlives_the_watcher(scripted: ScriptedClient) -> None:
    watch = Watcher(scripted, Clock())
    scripted.next_status = status("BOOTING")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_error_of(watch.wait_for({EngineState.ROLLING})))
        async with Tasks("watcher") as tasks:
            tasks.spawn(watch.run(), "watcher")
            await _until(lambda: watch.current.seen_at > 0)
    assert isinstance(waiting.result(), SwarmError)


async def test_all_waiters_wake_at_the_same_poll(server: ScriptedSwarm, watcher: Watcher) -> None:
    server.automatic = False
    async with asyncio.TaskGroup() as group:
        waits = [
            group.create_task(watcher.wait_for({EngineState.WEIGHT_SYNCING}, 60)) for _ in range(50)
        ]
        await asyncio.sleep(0)
        before = server.requests["/get_engine_status"]
        server.set_state("WEIGHT_SYNCING")
    assert len({id(task.result()) for task in waits}) == 1
    assert server.requests["/get_engine_status"] - before <= 3
    assert watcher._waiters == {}


async def test_waiting_for_a_condition_that_holds_sends_no_request(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    await watch.poll()
    assert (await watch.wait_for({EngineState.ROLLING}, 0)).step == 1


async def test_an_unreachable_server_has_no_state(scripted: ScriptedClient, watch: Watcher) -> None:
    await watch.poll()
    scripted.next_status = GONE
    for _ in range(LOST_AFTER):
        await watch.poll()
    with pytest.raises(TimeoutError):
        await watch.wait_for({EngineState.ROLLING}, 0.01)
    assert (
        await watch.wait_for(lambda current: not current.reachable, 0)
    ).error == "gone: no connection"
    assert watch._waiters == {}


async def test_a_nudge_polls_at_once(server: ScriptedSwarm, watcher: Watcher) -> None:
    began, rounds = loop_time(), 20
    first = server.requests["/get_engine_status"]
    for n in range(1, rounds + 1):
        watcher.nudge()
        await server.until(partial(_polled, server, first + n))
    assert loop_time() - began < rounds * NORMAL / 2


async def test_refresh_is_newer_than_its_call(server: ScriptedSwarm, watcher: Watcher) -> None:
    server.automatic = False
    for step in range(2, 10):
        server.set_state("ROLLING", step)
        assert (await watcher.refresh(60)).step == step


async def test_refresh_does_not_use_a_poll_in_progress(
    server: ScriptedSwarm, watcher: Watcher
) -> None:
    """The result of a poll begun earlier may be older than the caller's status."""
    polls = watcher._polls
    server.freeze()
    watcher.nudge()
    await asyncio.wait_for(_until(lambda: watcher._polling == 1), 60)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(watcher.refresh(60))
        await asyncio.sleep(0)
        server.unfreeze()
        await waiting
    assert watcher._polls >= polls + 2


async def test_stable_means_unchanged_for_a_while(scripted: ScriptedClient, watch: Watcher) -> None:
    """A second passes before each reading: a late post of the dying trainer restarts it."""

    async def reading() -> None:
        skip(1.0)
        await watch.poll()
        await asyncio.sleep(0)

    scripted.next_status = status("OFFLINE", 5)
    await watch.poll()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_stable_offline(watch, 6.0))
        await asyncio.sleep(0)
        for _ in range(5):
            await reading()
        scripted.next_status = status("OFFLINE", 0)
        for _ in range(6):
            await reading()
            assert not waiting.done()
        await reading()
    assert waiting.result().step == 0


async def test_a_server_that_refuses_connections_is_lost_after_a_second(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = status("ROLLING", 5)
    await watch.poll()

    async def expect_unreachable() -> None:
        with pytest.raises(Unreachable, match="gone: "):
            await wait_stable_offline(watch, 6.0)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(expect_unreachable())
        await asyncio.sleep(0)
        scripted.next_status = GONE
        for _ in range(3):
            await watch.poll()
            await asyncio.sleep(0)
            assert not waiting.done()
            skip(0.4)
        await watch.poll()


# -- the pool -----------------------------------------------------------------------------------


async def test_pool_listeners_are_only_called_on_changes(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    infos: list[PoolInfo] = []
    watch.add_pool_listener(infos.append)
    one, two = PoolInfo(completed_episodes=1), PoolInfo(completed_episodes=2)
    scripted.pools = [one, PoolInfo(completed_episodes=1), None, GONE, two]
    for _ in range(5):
        await watch.poll_pool()
    assert infos == [one, two]
    assert watch.pool == two


async def test_a_failed_reading_keeps_the_last_one(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.pools = [PoolInfo(completed_episodes=3), None]
    await watch.poll_pool()
    at = watch.pool_at
    assert await watch.poll_pool() is None
    assert watch.pool is not None
    assert (watch.pool.completed_episodes, watch.pool_at) == (3, at)


async def test_the_pool_is_read_while_rolling_only(
    server: ScriptedSwarm, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL", 0.01)
    route = "/get_current_batch_rollout_pool_information"
    await server.until(lambda: server.requests[route] >= 1)
    server.set_state("OFFLINE")
    await watcher.wait_for({EngineState.OFFLINE}, 60)
    await server.until(lambda: server.requests["/get_engine_status"] >= 1)
    reads = server.requests[route]
    before = server.requests["/get_engine_status"]
    watcher.nudge()
    await server.until(lambda: server.requests["/get_engine_status"] >= before + 1)
    assert server.requests[route] <= reads + 1
    assert watcher.period == NORMAL
    server.set_state("ROLLING", 1)
    await server.until(lambda: server.requests[route] >= reads + 3)


async def test_a_server_that_returns_is_reachable_again(
    server: ScriptedSwarm, client: SwarmWire
) -> None:
    watch = Watcher(client, poll_timeout=0.3)
    async with Tasks("test") as tasks:
        tasks.spawn(watch.run(), "watch")
        await watch.wait_for(lambda current: current.reachable, 60)
        server.freeze()
        lost = await watch.wait_for(lambda current: not current.reachable, 60)
        assert (lost.state, lost.error) == (EngineState.ROLLING, "frozen: no answer for 0.3 s")
        server.unfreeze()
        assert (await watch.wait_for(lambda current: current.reachable, 60)).error == ""


def _polled(server: ScriptedSwarm, times: int) -> bool:
    return server.requests["/get_engine_status"] >= times


async def _until(test: object) -> None:
    assert callable(test)
    while not test():
        await asyncio.sleep(0.002)


async def _error_of(work: Coroutine[Any, Any, object]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  returned to the test
        return error
    return None
