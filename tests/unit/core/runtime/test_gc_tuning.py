"""The collector of a server process frees cycles although it rarely scans old objects."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from ajet_swarm.common.tasks import Tasks
from core.runtime import gc_tuning
from core.runtime.gc_tuning import FULL_EVERY, MIDDLE_EVERY, OVERDUE, QUIET, collect_in_steps


class Node:
    """A part of a cycle."""

    other: "Node"


@pytest.fixture(autouse=True)
def plain_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gc_tuning, "STEP", 0.0)
    threshold = gc.get_threshold()
    gc.disable()
    yield
    gc.enable()
    gc.set_threshold(*threshold)


def cycle() -> tuple[Node, "weakref.ref[Node]"]:
    node, other = Node(), Node()
    node.other, other.other = other, node
    return node, weakref.ref(node)


async def steps() -> None:
    for _ in range(3 * MIDDLE_EVERY):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("busy", "seconds"), [(False, FULL_EVERY), (True, FULL_EVERY), (True, OVERDUE)]
)
async def test_each_cycle_is_freed_in_time(busy: bool, seconds: float) -> None:
    now = 0.0
    async with Tasks("test") as tasks:
        tasks.spawn(collect_in_steps(lambda: busy, lambda: now), "gc")
        await steps()
        node, later = cycle()
        at_once = cycle()[1]
        assert at_once() is not None
        await steps()
        assert at_once() is None
        del node  # a cycle among old objects
        await steps()
        assert later() is not None
        now = seconds + QUIET
        await steps()
        assert (later() is None) == (not busy or seconds == OVERDUE)
    gc.collect()
    assert later() is None
