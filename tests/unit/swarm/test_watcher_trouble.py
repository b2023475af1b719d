"""Names of what is wrong with a server."""

import pytest

from swarm.errors import SwarmError
from swarm.watcher import Watcher
from tests.unit.swarm.helpers import FROZEN, GONE, Clock, Told, status


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watch(told: Told) -> Watcher:
    return Watcher(told, Clock())


@pytest.mark.parametrize(
    ("fault", "words", "polls"), [(GONE, ["gone"], 10), (FROZEN, ["frozen", "mute"], 26)]
)
async def test_a_server_is_expected_back_for_a_while(
    told: Told, watch: Watcher, fault: SwarmError, words: list[str], polls: int
) -> None:
    await watch.poll()
    told.said = fault
    assert (await watch.poll()).trouble == ""  # one missed poll is nothing
    seen = [await watch.poll() for _ in range(30)]
    assert list(dict.fromkeys(one.trouble for one in seen)) == words
    late = [one.down for one in seen]
    assert late == sorted(late)
    assert not late[0]
    assert abs(late.index(True) + 2 - polls) <= 1
    told.said = status("ROLLING")
    back = await watch.poll()
    assert (back.trouble, back.down, back.reachable) == ("", False, True)


@pytest.mark.parametrize(("fault", "word"), [(GONE, "gone"), (FROZEN, "mute")])
async def test_a_server_that_never_was_there_is_not_waited_for(
    told: Told, watch: Watcher, fault: SwarmError, word: str
) -> None:
    told.said = fault
    await watch.poll()
    seen = await watch.poll()
    assert (seen.trouble, seen.down) == (word, True)


async def test_why_an_engine_is_off(told: Told, watch: Watcher) -> None:
    await watch.poll()
    told.said = status("OFFLINE", 0)
    for _ in range(2):
        seen = await watch.poll()
        assert (seen.trouble, seen.down) == ("knocked", False)
        assert "someone else" in seen.detail
    told.said = status("BOOTING", None)
    assert (await watch.poll()).trouble == ""
    told.said = status("ROLLING")
    await watch.poll()
    told.stopped_at = watch.clock()
    told.said = status("OFFLINE", 0)
    assert (await watch.poll()).trouble == ""
    told.said = status("ROLLING")
    await watch.poll()
    told.said = GONE
    await watch.poll()
    await watch.poll()
    told.said = status("OFFLINE", None, "waiting for a job")
    seen = await watch.poll()
    assert (seen.trouble, seen.detail) == ("restarted", "waiting for a job")
