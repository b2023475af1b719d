"""The queue of claims: who claims next, how many claim at a time, nothing lost when one leaves."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.queue import (
    START,
    WIDEST,
    ClaimQueue,
    FairQueue,
    Origin,
    QueueEntry,
    item_to_displace,
)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


def idle(queue: ClaimQueue) -> bool:
    return (queue.inside, queue.claiming, queue.waiting, queue.starved) == (0, 0, 0, False)


class Line:
    """Who claimed, in order; each keeps its place until it leaves."""

    def __init__(self, queue: ClaimQueue) -> None:
        self.queue = queue
        self.inside: list[QueueEntry] = []
        self.order: list[str] = []

    async def claim(self, name: str, origin: str) -> None:
        entry = QueueEntry(self.queue, (origin,))
        await entry.take(soon())
        entry.claimed()
        self.order.append(name)
        self.inside.append(entry)


# --- order --------------------------------------------------------------------------------------


async def test_a_sender_with_one_request_does_not_wait_for_one_with_a_hundred() -> None:
    line = Line(ClaimQueue(1))
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(line.claim(f"a{number}", "a"))
        await settle()
        group.create_task(line.claim("b0", "b"))
        group.create_task(line.claim("b1", "b"))
        group.create_task(line.claim("c0", "c"))
        await settle()
        assert line.order == ["a0"]
        assert line.queue.waiting == 102
        for _ in range(103):
            line.inside.pop(0).leave()
            await settle()
    assert line.order[:7] == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    assert line.order[7:] == [f"a{number}" for number in range(4, 100)]  # in their own order
    assert idle(line.queue)


async def test_the_senders_alternate_although_one_has_claims_under_way(tasks: Tasks) -> None:
    queue = ClaimQueue()
    many = [QueueEntry(queue, ("a",), 4) for _ in range(40)]
    waits = [tasks.spawn(entry.take(), "a") for entry in many]
    await settle()
    assert queue.claiming == START // 4
    other = QueueEntry(queue, ("b",), 4)
    waiting = tasks.spawn(other.take(), "b")
    await settle()
    many[0].end_claims()
    await settle()
    assert waiting.done()
    other.leave()
    for entry in many:
        await settle()
        entry.leave()
    await asyncio.gather(*waits)
    assert idle(queue)


async def test_the_newest_that_may_overtake_does_in_every_second_place(tasks: Tasks) -> None:
    queue = ClaimQueue(1)
    first = QueueEntry(queue, ("", "", "a"))
    await first.take()
    old = [QueueEntry(queue, ("", "", "a")) for _ in range(2)]
    new = [QueueEntry(queue, ("", "", "b"), may_overtake=True, arrived=float(n)) for n in range(2)]
    waits = [tasks.spawn(entry.take(), "entry") for entry in (*old, *new)]
    order: list[int] = []
    every = [first, *old, *new]
    for _ in range(5):
        await settle()
        (entry,) = [entry for entry in every if entry.claims]
        order.append(every.index(entry))
        entry.leave()
    await asyncio.gather(*waits)
    assert order == [0, 4, 1, 3, 2]
    assert [entry.overtook for entry in every] == [False, False, False, True, True]


# --- how many claim at a time -------------------------------------------------------------------


async def test_granted_episodes_let_more_claim_and_a_refusal_only_one(tasks: Tasks) -> None:
    queue = ClaimQueue()
    entries = [QueueEntry(queue) for _ in range(200)]
    waits = [tasks.spawn(entry.take(), "entry") for entry in entries]
    await settle()
    assert [entry.claims for entry in entries[: START + 1]] == [True] * START + [False]
    entries[0].claimed()
    await settle()
    assert queue.claiming == START + 1
    for entry in entries[1:100]:
        await settle()
        entry.claimed()
    await settle()
    assert queue.claiming == WIDEST
    (refused, *others) = [entry for entry in entries if entry.claims]
    refused.refused(True)
    for entry in others:
        entry.leave()
    await settle()
    assert queue.claiming == 1
    refused.leave()
    await settle()
    assert queue.claiming == 1
    queue.reopen()
    await settle()
    assert queue.claiming == START
    for entry in entries:
        await settle()
        entry.leave()
    await asyncio.gather(*waits)
    assert idle(queue)


async def test_a_group_larger_than_the_width_claims_alone(tasks: Tasks) -> None:
    queue = ClaimQueue()
    large, small = QueueEntry(queue, (), 3 * START), QueueEntry(queue, (), 1)
    await large.take()
    waiting = tasks.spawn(small.take(), "small")
    await settle()
    assert not waiting.done()
    large.claimed()
    await waiting


async def test_a_limit_counts_those_that_hold_episodes(tasks: Tasks) -> None:
    queue = ClaimQueue(1)
    first, second = QueueEntry(queue), QueueEntry(queue)
    await first.take()
    first.claimed()
    assert first.inside
    assert not second.take_at_once()
    waiting = tasks.spawn(second.take(), "second")
    await settle()
    assert not waiting.done()
    first.leave()
    await waiting
    second.leave()
    assert idle(queue)


async def test_an_entry_that_has_ended_its_claims_may_claim_again_within_the_limit() -> None:
    queue = ClaimQueue(1)
    entry = QueueEntry(queue)
    await entry.take()
    entry.end_claims()
    assert entry.take_at_once()
    assert queue.inside == 1
    entry.leave()
    assert idle(queue)


# --- after a refusal ----------------------------------------------------------------------------


async def test_turns_that_were_refused_together_go_on_one_by_one_in_their_order(
    tasks: Tasks,
) -> None:
    queue = ClaimQueue()
    entries = [QueueEntry(queue, (), 2) for _ in range(4)]
    later = QueueEntry(queue, (), 2)
    for entry in entries:
        await entry.take()
    waiting = tasks.spawn(later.take(), "later")
    for entry in entries:
        entry.refused(True)
    again = {
        entry: tasks.spawn(entry.again(0.0), "again") for entry in (entries[n] for n in (2, 0, 3))
    }
    await settle()
    assert not any(task.done() for task in again.values())
    again[entries[1]] = tasks.spawn(entries[1].again(0.0), "again")
    for entry in entries:
        await settle()
        assert [other for other in (*entries, later) if other.claims] == [entry]
        assert await again[entry] is False
        entry.leave()
    await waiting
    later.leave()
    assert idle(queue)


async def test_a_turn_refused_alone_tries_again_at_once() -> None:
    queue = ClaimQueue()
    entry = QueueEntry(queue, (), 4)
    await entry.take()
    entry.refused(True)
    assert queue.starved
    assert not await entry.again(60.0)
    entry.refused(False)
    assert not queue.starved
    assert entry.claims
    entry.leave()
    assert idle(queue)


async def test_smaller_turns_go_before_all_large_ones_that_wait_in_vain(tasks: Tasks) -> None:
    queue = ClaimQueue()
    large = [QueueEntry(queue, ("a",), 8) for _ in range(6)]
    waits = [tasks.spawn(entry.take(), "large") for entry in large]
    small = [QueueEntry(queue, ("a",), 4) for _ in range(2)]
    waits += [tasks.spawn(entry.take(), "small") for entry in small]
    await settle()
    large[0].refused(True)
    assert large[0].must_not_hold_parts()
    assert not await large[0].again(0.5)  # its patience lasts
    yielding = tasks.spawn(large[0].again(1.0), "yields")
    for entry in small:
        await settle()
        assert entry.claims
        entry.leave()
    for entry in large[1:]:
        await settle()
        assert entry.claims
        entry.leave()
    assert await yielding
    newest = QueueEntry(queue, ("a",), 4)
    waits.append(tasks.spawn(newest.take(), "small"))
    await settle()
    assert not large[0].must_not_hold_parts()
    assert not await large[0].again(1.5)  # it has twice the patience now
    large[0].leave()
    await settle()
    newest.leave()
    await asyncio.gather(*waits)
    assert idle(queue)


async def test_a_group_of_equal_size_does_not_go_first(tasks: Tasks) -> None:
    queue = ClaimQueue()
    first, second = QueueEntry(queue, (), 8), QueueEntry(queue, (), 8)
    await first.take()
    waiting = tasks.spawn(second.take(), "second")
    await settle()
    first.refused(True)
    assert not await first.again(60.0)
    first.leave()
    await waiting


# --- leaving ------------------------------------------------------------------------------------


async def test_a_turn_that_does_not_come_before_the_deadline_times_out() -> None:
    queue = ClaimQueue(1)
    first, second, third = QueueEntry(queue), QueueEntry(queue), QueueEntry(queue)
    await first.take(soon())
    for late in (0.01, -1.0):
        with pytest.raises(TimeoutError):
            await second.take(asyncio.get_running_loop().time() + late)
    assert queue.waiting == 0
    second.leave()
    assert queue.inside == 1
    first.leave()
    await third.take(asyncio.get_running_loop().time() - 1.0)  # free: no wait, no timeout
    assert queue.inside == 1


@pytest.mark.parametrize("comes_first", [True, False])
async def test_a_turn_cancelled_as_it_comes_passes_to_the_next(
    tasks: Tasks, comes_first: bool
) -> None:
    queue = ClaimQueue(1)
    first, second, third = QueueEntry(queue), QueueEntry(queue), QueueEntry(queue)
    await first.take(soon())
    cancelled = tasks.spawn(second.take(soon()), "second")
    waits = tasks.spawn(third.take(soon()), "third")
    await settle()
    for act in (first.leave, cancelled.cancel) if comes_first else (cancelled.cancel, first.leave):
        act()
    await settle()
    assert cancelled.cancelled()
    assert waits.done()
    third.leave()
    assert idle(queue)


async def test_a_large_turn_that_leaves_the_queue_lets_a_smaller_one_claim(tasks: Tasks) -> None:
    queue = ClaimQueue()
    first, large, small = (
        QueueEntry(queue, (), 4),
        QueueEntry(queue, (), 8),
        QueueEntry(queue, (), 4),
    )
    await first.take()
    leaves = tasks.spawn(large.take(), "large")
    waits = tasks.spawn(small.take(), "small")
    await settle()
    assert not waits.done()
    leaves.cancel()
    await waits


Move = tuple[str, int]
moves = st.lists(
    st.tuples(
        st.sampled_from(
            ("come", "claimed", "refused", "again", "yield", "leave", "cancel", "reopen", "settle")
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(moves, st.integers(0, 3))
def test_no_wake_up_is_lost_and_no_bound_exceeded_in_any_story(
    story: list[Move], limit: int
) -> None:
    asyncio.run(_story(story, limit))


async def _story(story: list[Move], limit: int) -> None:
    queue = ClaimQueue(limit)
    waiting: list[tuple[QueueEntry, asyncio.Task[object]]] = []
    inside: list[QueueEntry] = []

    async def rest() -> None:
        for _ in range(2):  # what is cancelled may let others in
            await settle()
            for entry, task in tuple(waiting):
                if task.done():
                    waiting.remove((entry, task))
                    if task.cancelled():
                        entry.leave()  # as its caller does
                    else:
                        inside.append(entry)

    def come(number: int) -> None:
        entry = QueueEntry(queue, (f"s{number % 2}",), 1 + number % 3)
        waiting.append((entry, tasks.spawn(entry.take(), "take")))

    def claiming(number: int) -> QueueEntry | None:
        entries = [entry for entry in inside if entry.claims]
        return entries[number % len(entries)] if entries else None

    def retry(number: int, waited: float) -> None:
        if (entry := claiming(number)) is not None:
            inside.remove(entry)
            waiting.append((entry, tasks.spawn(entry.again(waited), "again")))

    def claimed(number: int) -> None:
        if (entry := claiming(number)) is not None:
            entry.claimed()

    def refused(number: int) -> None:
        if (entry := claiming(number)) is not None:
            entry.refused(number % 2 == 0)

    def leave(number: int) -> None:
        if inside:
            inside.pop(number % len(inside)).leave()

    def cancel(number: int) -> None:
        if waiting:
            waiting[number % len(waiting)][1].cancel()

    acts: dict[str, Callable[[int], None]] = {
        "come": come,
        "claimed": claimed,
        "refused": refused,
        "again": lambda number: retry(number, 0.0),
        "yield": lambda number: retry(number, 60.0),
        "leave": leave,
        "cancel": cancel,
        "reopen": lambda _: queue.reopen(),
    }
    async with Tasks("story") as tasks:
        for what, number in story:
            if what != "settle":
                acts[what](number)
                continue
            await rest()
            assert queue.inside == len(inside)
            assert queue.waiting == len(waiting)
            assert queue.claiming == sum(entry.claims for entry in inside)
            assert not limit or queue.inside <= limit
            if waiting and not (limit and queue.inside >= limit):
                assert queue.claiming  # else the first one could claim
        await rest()
        while inside or waiting:
            assert inside  # else nobody lets the waiting ones in
            leave(0)
            await rest()
        assert idle(queue)


def drained(queue: FairQueue[str]) -> list[str]:
    """Return all items in the order of their turns; the queue is empty afterwards."""
    items = []
    while queue:
        origin, item = next(iter(queue))
        assert queue.first() == item
        queue.end_turn(origin, item)
        assert queue.remove(origin, item)
        items.append(item)
    return items


def test_keys_take_turns_then_addresses_then_sessions() -> None:
    queue: FairQueue[str] = FairQueue()
    for origin in ("AxS", "AxS", "AxT", "AyS", "BxS", "BxS"):
        queue.push(tuple(origin), origin)
    queue.push(("C", "x", "S"), "CxS")
    assert drained(queue) == ["AxS", "BxS", "CxS", "AyS", "BxS", "AxT", "AxS"]


def test_an_item_put_back_is_the_next() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a1", "b1", "a2"):
        queue.push((name[0],), name)
    first = [next(iter(queue))]
    queue.end_turn(first[0][0])
    queue.remove(*first[0])
    queue.push(*first[0], front=True)
    assert drained(queue) == ["a1", "b1", "a2"]
    assert not queue.remove(("a",), "a1")


def test_the_newest_of_a_sender_that_may_overtake_gets_every_second_place() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(6):
        queue.push(("A", ""), f"A{number}", may_overtake=True)
    for number in range(2):
        queue.push(("A", "S"), f"S{number}")
    queue.push(("B", ""), "B")
    assert [item for _, item in queue] == ["A5", "A0", "A1", "A2", "A3", "A4", "S0", "S1", "B"]
    assert queue.remove(("A", ""), "A4")
    order = drained(queue)
    assert order[1] == "B"
    order.remove("B")
    assert order == ["A5", "S0", "A3", "S1", "A2", "A0", "A1"]


def test_requests_repeated_on_busy_connections_do_not_delay_one_that_may_overtake() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.push(("A", ""), f"old {number}")
    queue.end_turn(*next(iter(queue)))
    queue.push(("A", ""), "one", may_overtake=True)
    assert next(iter(queue))[1] == "one"


def take(queue: FairQueue[str]) -> str:
    """Give the next item its turn, and return it."""
    origin, item = next(iter(queue))
    assert queue.first() == item
    queue.end_turn(origin, item)
    queue.remove(origin, item)
    return item


def test_items_that_are_added_later_do_not_overtake_one_that_arrived_later() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.push(("A", ""), f"old {number}", may_overtake=True, arrived=float(number))
    assert take(queue) == "old 3"
    queue.push(("A", ""), "new", may_overtake=True, arrived=9.0)
    assert take(queue) == "old 0"
    queue.push(("A", ""), "late 0", may_overtake=True, arrived=4.0)
    queue.push(("A", ""), "late 1", may_overtake=True, arrived=5.0)
    queue.push(("A", ""), "late 2", may_overtake=True, arrived=5.0)
    queue.push(("B", ""), "b")
    assert [take(queue) for _ in range(7)] == [
        *("b", "new", "old 1", "late 2", "old 2", "late 1", "late 0")
    ]


def test_a_turn_of_an_item_that_is_put_back_does_not_count() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(3):
        queue.push(("A", ""), f"old {number}")
    queue.push(("A", ""), "new 0", may_overtake=True, arrived=1.0)
    assert take(queue) == "new 0"
    assert take(queue) == "old 0"
    queue.push(("A", ""), "old 0", front=True)
    queue.push(("A", ""), "new 1", may_overtake=True, arrived=2.0)
    assert take(queue) == "old 0"
    assert take(queue) == "new 1"
    queue.push(("A", ""), "new 1", may_overtake=True, arrived=2.0, front=True)
    assert take(queue) == "new 1"
    queue.push(("A", ""), "new 1", may_overtake=True, arrived=2.0, front=True)
    queue.push(("A", ""), "new 2", may_overtake=True, arrived=3.0)
    assert [take(queue) for _ in range(4)] == ["new 2", "new 1", "old 1", "old 2"]


coming = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("ab"), st.booleans()))


@pytest.mark.slow
@given(coming)
def test_each_item_gets_one_turn_despite_overtaking(
    items: list[tuple[str, str, bool]],
) -> None:
    queue: FairQueue[str] = FairQueue()
    names = [f"item {number}" for number in range(len(items))]
    for name, (sender, session, may_overtake) in zip(names, items, strict=True):
        queue.push((sender, session), name, may_overtake)
    assert sorted(item for _, item in queue) == sorted(names)
    assert sorted(drained(queue)) == sorted(names)


origins = st.lists(st.tuples(*[st.sampled_from("abc")] * 3), max_size=40)


@pytest.mark.slow
@given(origins, st.tuples(*[st.sampled_from("abc")] * 3))
def test_no_sender_keeps_more_than_half_while_others_wait(
    waiting: list[Origin], origin: Origin
) -> None:
    """A new item of a sender with fewer items always displaces one of the sender with the most."""
    pairs = [(origin, number) for number, origin in enumerate(waiting)]
    displaced = item_to_displace(pairs, origin)
    own = sum(other[0] == origin[0] for other in waiting)
    most = max((sum(other[0] == key for other in waiting) for key in "abc"), default=0)
    assert (displaced is not None) or most <= own + 1
    if displaced is not None and most > own + 1:
        its_lane = waiting[displaced]
        assert sum(other[0] == its_lane[0] for other in waiting) == most
        assert not any(other == its_lane for other in waiting[displaced + 1 :])
