"""A watcher whose server fails, or is away for long."""

import asyncio

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import (
    QUIET,
    QUIET_EMBEDDED,
    Watcher,
    answers_as_embedded,
    quiet_seconds,
    wait_stable_offline,
)
from ajet_swarm.protocol.errors import SwarmError, Unreachable
from tests.support.capped_clock import skip
from tests.unit.ajet_swarm.helpers import FROZEN, GONE, Clock, ScriptedClient, status


@pytest.mark.parametrize(
    ("fault", "words", "polls"), [(GONE, ["gone"], 11), (FROZEN, ["frozen", "silent"], 27)]
)
async def test_a_server_is_expected_back_for_a_while(
    scripted: ScriptedClient, watch: Watcher, fault: SwarmError, words: list[str], polls: int
) -> None:
    await watch.poll()
    scripted.next_status = fault
    assert (await watch.poll()).trouble == ""  # one missed poll is nothing
    statuses = []
    for _ in range(30):
        skip(1.0)
        statuses.append(await watch.poll())
    assert list(dict.fromkeys(reading.trouble for reading in statuses)) == words
    late = [reading.down for reading in statuses]
    assert late == sorted(late)
    assert not late[0]
    assert abs(late.index(True) + 2 - polls) <= 1
    scripted.next_status = status("ROLLING")
    back = await watch.poll()
    assert (back.trouble, back.down, back.reachable) == ("", False, True)


@pytest.mark.parametrize("fault", [GONE, FROZEN])
async def test_a_suspended_machine_does_not_report_its_server_as_lost(
    scripted: ScriptedClient, clock: Clock, watch: Watcher, fault: SwarmError
) -> None:
    await watch.poll()
    clock.now += 3600.0
    skip(3600.0)
    scripted.next_status = fault
    assert not any([(await watch.poll()).down for _ in range(9)])
    clock.now += 3600.0  # set by another client
    assert not (await watch.poll()).down
    skip(26.0)
    assert (await watch.poll()).down


@pytest.mark.parametrize(("fault", "word"), [(GONE, "gone"), (FROZEN, "silent")])
async def test_a_server_that_was_never_reachable_is_not_expected_back(
    scripted: ScriptedClient, watch: Watcher, fault: SwarmError, word: str
) -> None:
    scripted.next_status = fault
    await watch.poll()
    current = await watch.poll()
    assert (current.trouble, current.down) == (word, True)


async def test_the_reason_for_offline_is_reported(scripted: ScriptedClient, watch: Watcher) -> None:
    await watch.poll()
    scripted.next_status = status("OFFLINE", 0)
    for _ in range(2):
        current = await watch.poll()
        assert (current.trouble, current.down) == ("stopped by another client", False)
        assert "someone else" in current.detail
    scripted.next_status = status("BOOTING", None)
    assert (await watch.poll()).trouble == ""
    scripted.next_status = status("ROLLING")
    await watch.poll()
    scripted.stopped_at = watch.clock()
    scripted.next_status = status("OFFLINE", 0)
    assert (await watch.poll()).trouble == ""
    scripted.next_status = status("ROLLING")
    await watch.poll()
    scripted.next_status = GONE
    await watch.poll()
    await watch.poll()
    scripted.next_status = status("OFFLINE", None, "waiting for a job")
    current = await watch.poll()
    assert (current.trouble, current.detail) == ("restarted", "waiting for a job")


@pytest.mark.parametrize(
    ("embedded", "quiet", "seconds"),
    [
        (False, None, QUIET),
        (True, None, QUIET_EMBEDDED),
        (False, 0.1, 0.1),
        (True, 0.1, 0.1),
        (True, 60.0, QUIET_EMBEDDED),
    ],
)
def test_the_embedded_engine_never_waits_longer_than_a_server_with_a_trainer(
    embedded: bool, quiet: float | None, seconds: float
) -> None:
    assert quiet_seconds(embedded, quiet) == seconds


async def test_a_server_without_a_response_does_not_count_as_embedded(
    scripted: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_response(*, again: bool = False) -> frozenset[str]:
        raise Unreachable("refused", "http://x")

    monkeypatch.setattr(scripted, "features", no_response)
    assert not await answers_as_embedded(scripted)


async def test_the_wait_has_a_limit_beyond_the_quiet_seconds(
    scripted: ScriptedClient, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "OFF_LIMIT", 0.0)
    scripted.next_status = status("ROLLING", 1)
    await watch.poll()
    with pytest.raises(TimeoutError):
        await wait_stable_offline(watch, 0.0)


async def test_an_offline_of_the_first_reading_is_stable_without_quiet_seconds(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = status("OFFLINE", 0)
    await watch.poll()
    assert (await wait_stable_offline(watch, 0.0)).step == 0


async def test_a_server_that_is_gone_ends_the_wait(
    scripted: ScriptedClient, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "OFF_LIMIT", 0.0)
    scripted.next_status = GONE
    for _ in range(2):
        await watch.poll()
    with pytest.raises(Unreachable):
        await asyncio.wait_for(wait_stable_offline(watch, 0.05), 60)
