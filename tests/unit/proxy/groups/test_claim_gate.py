"""The gate: turns between sessions, its limits, nothing lost when waiters go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ajet_swarm.claims.lane_queue import LaneQueue
from ajet_swarm.common.tasks import Tasks
from proxy.groups.claim_gate import CLAIMING, ClaimGate, ClaimTurn

pytestmark = pytest.mark.slow


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks("test") as owner:
        yield owner


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


class Line:
    """Who was let in, in order."""

    def __init__(self, gate: ClaimGate) -> None:
        self.gate = gate
        self.inside: list[tuple[str, ClaimTurn]] = []
        self.order: list[str] = []
        self.late: list[str] = []

    async def claim(self, name: str, session: str, deadline: float | None = None) -> None:
        turn = self.gate.turn()
        try:
            await turn.enter((session,), deadline or soon())
        except TimeoutError:
            self.late.append(name)
            return
        turn.claimed()
        self.order.append(name)
        self.inside.append((name, turn))

    def leave(self) -> None:
        self.inside.pop(0)[1].leave()


async def test_a_session_with_one_request_does_not_wait_for_one_with_a_hundred() -> None:
    line = Line(ClaimGate(1))
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(line.claim(f"a{number}", "a"))
        await settle()
        group.create_task(line.claim("b0", "b"))
        group.create_task(line.claim("b1", "b"))
        group.create_task(line.claim("c0", "c"))
        await settle()
        assert line.order == ["a0"]
        assert line.gate.waiting == 102
        for _ in range(103):
            line.leave()
            await settle()
    assert line.order[:7] == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    assert line.order[7:] == [f"a{number}" for number in range(4, 100)]  # in their own order
    assert (line.gate.inside, line.gate.claiming, line.gate.waiting) == (0, 0, 0)


async def test_only_some_claim_at_a_time_when_there_is_no_limit(tasks: Tasks) -> None:
    gate = ClaimGate(0, claiming=3)  # two, and one that is kept for smaller groups
    turns = [gate.turn() for _ in range(5)]
    waits = [tasks.spawn(turn.enter(("s",), soon()), f"{i}") for i, turn in enumerate(turns)]
    await settle()
    assert [task.done() for task in waits] == [True, True, False, False, False]
    turns[0].claimed()
    turns[0].claimed()  # another round of the same group
    await settle()
    assert [task.done() for task in waits] == [True, True, True, False, False]
    turns[1].leave()  # without its episodes
    turns[1].leave()
    await settle()
    assert [task.done() for task in waits] == [True, True, True, True, False]
    for turn in turns[2:]:
        turn.leave()
        await settle()
    turns[4].leave()
    turns[0].leave()
    await asyncio.gather(*waits)
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_a_full_gate_does_not_go_through_its_queue(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = 0
    walk = LaneQueue.__iter__

    def counted(queue: LaneQueue[object]) -> Iterator[tuple[tuple[str, ...], object]]:
        nonlocal walks
        walks += 1
        return walk(queue)

    monkeypatch.setattr(LaneQueue, "__iter__", counted)
    gate = ClaimGate()
    turns = [gate.turn() for _ in range(200)]
    waits = [tasks.spawn(turn.enter(("a",), soon(), 4), "a") for turn in turns]
    await settle()
    assert gate.waiting == 200 - (CLAIMING - 1)
    assert walks == 0
    turns[0].claimed()
    await settle()
    assert (walks, gate.waiting) == (0, 200 - CLAIMING)
    for turn in turns:
        turn.leave()
        await settle()
    await asyncio.gather(*waits)
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_groups_of_one_session_inside_the_gate_do_not_block_another_session(
    tasks: Tasks,
) -> None:
    gate = ClaimGate()
    busy = [gate.turn() for _ in range(40)]
    waits = [tasks.spawn(turn.enter(("a",), soon(), 4), "a") for turn in busy]
    await settle()
    assert gate.claiming == CLAIMING - 1
    other, second, small = gate.turn(), gate.turn(), gate.turn()
    await other.enter(("b",), soon(), 4)
    later = tasks.spawn(second.enter(("b",), soon(), 4), "b")  # one of a session is enough
    await settle()
    assert not later.done()
    await small.enter(("a",), soon(), 1)  # the kept place is still there
    for turn in (other, small, second, *busy):
        await settle()
        turn.leave()
    await asyncio.gather(later, *waits)
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_large_groups_that_cannot_claim_do_not_block_a_small_one(tasks: Tasks) -> None:
    gate = ClaimGate()
    large = [gate.turn() for _ in range(40)]
    waits = [tasks.spawn(turn.enter(("",), soon(), 16), "large") for turn in large]
    await settle()
    assert gate.waiting == 40 - (CLAIMING - 1)
    small, smaller, same = gate.turn(), gate.turn(), gate.turn()
    await small.enter(("",), soon(), 4)  # the last place, though it arrived last
    later = [
        tasks.spawn(one.enter(("",), soon(), n), "later") for one, n in ((same, 4), (smaller, 1))
    ]
    await settle()
    assert not any(task.done() for task in later)
    small.claimed()
    await settle()
    assert [task.done() for task in later] == [True, False]  # the first of those that may
    same.leave()
    await settle()
    assert later[1].done()
    for turn in (small, smaller, *large):
        await settle()
        turn.leave()
    await asyncio.gather(*waits)
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_the_last_place_is_reserved_while_no_group_holds_an_episode(tasks: Tasks) -> None:
    gate = ClaimGate(3)
    first, second, third, small = (gate.turn() for _ in range(4))
    await first.enter(("a",), soon(), 8)
    await second.enter(("b",), soon(), 8)
    waits = tasks.spawn(third.enter(("c",), soon(), 8), "third")
    await settle()
    assert not waits.done()
    await small.enter(("d",), soon(), 4)
    small.leave()
    await settle()
    assert not waits.done()
    first.claimed()  # and will give its place back
    await settle()
    assert waits.done()
    for turn in (first, second, third):
        turn.leave()
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_a_turn_that_does_not_open_before_the_deadline_times_out() -> None:
    gate = ClaimGate(1)
    first, second, third = gate.turn(), gate.turn(), gate.turn()
    await first.enter(("a",), soon())
    with pytest.raises(TimeoutError):
        await second.enter(("b",), asyncio.get_running_loop().time() + 0.01)
    with pytest.raises(TimeoutError):
        await second.enter(("b",), asyncio.get_running_loop().time() - 1.0)
    assert gate.waiting == 0
    second.leave()
    assert gate.inside == 1
    first.leave()
    await third.enter(("c",), asyncio.get_running_loop().time() - 1.0)  # free: no wait, no timeout
    assert gate.inside == 1


async def test_a_turn_cancelled_at_the_moment_it_opens_passes_to_the_next_group(
    tasks: Tasks,
) -> None:
    gate = ClaimGate(1)
    first, second, third = gate.turn(), gate.turn(), gate.turn()
    await first.enter(("a",), soon())
    cancelled = tasks.spawn(second.enter(("b",), soon()), "b")
    waits = tasks.spawn(third.enter(("c",), soon()), "c")
    await settle()
    first.leave()
    cancelled.cancel()
    await settle()
    assert cancelled.cancelled()
    assert waits.done()
    third.leave()
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_a_helper_call_has_a_turn_of_its_own(tasks: Tasks) -> None:
    gate = ClaimGate(1)
    blocker, helper = gate.turn(), gate.turn()
    await blocker.enter(("s",), soon())
    mains = [gate.turn() for _ in range(3)]
    waits = [tasks.spawn(turn.enter(("s",), soon()), "main") for turn in mains]
    aside = tasks.spawn(helper.enter(("s title",), soon()), "helper")
    await settle()
    blocker.leave()
    await settle()
    mains[0].leave()
    await settle()
    assert aside.done()
    helper.leave()
    for turn in mains[1:]:
        await settle()
        turn.leave()
    await asyncio.gather(*waits)
    assert gate.inside == 0


Move = tuple[str, int]
moves = st.lists(
    st.tuples(
        st.sampled_from(("come", "claimed", "leave", "cancel", "leave+cancel", "settle")),
        st.integers(0, 7),
    ),
    max_size=60,
)


SMALL_AFTER_TWO_BEYOND: list[Move] = [
    *[("come", 0)] * 3,
    *[("come", 1)] * 2,
    ("cancel", 0),
    ("come", 0),
    ("come", 2),
    ("come", 0),
    ("cancel", 5),
    ("settle", 0),
    ("leave+cancel", 0),
    ("settle", 0),
]
"""A small group takes the last place while two groups claim beyond the limit of one."""


@settings(max_examples=150, deadline=None)
@example(SMALL_AFTER_TWO_BEYOND, 0, 1)
@given(moves, st.integers(0, 3), st.integers(1, 3))
def test_no_wake_up_is_lost_and_no_bound_exceeded_in_any_story(
    story: list[Move], limit: int, claiming: int
) -> None:
    asyncio.run(_story(story, limit, claiming))


async def _story(story: list[Move], limit: int, claiming: int) -> None:
    async with Tasks("story") as tasks:
        await _play(story, ClaimGate(limit, claiming), tasks, limit, claiming)


async def _play(
    story: list[Move], gate: ClaimGate, tasks: Tasks, limit: int, claiming: int
) -> None:
    waiting: list[tuple[ClaimTurn, int, asyncio.Task[None]]] = []
    inside: list[tuple[ClaimTurn, int]] = []
    trying: dict[ClaimTurn, int] = {}

    def note_entered() -> None:
        for turn, size, task in tuple(waiting):
            if task.done():
                waiting.remove((turn, size, task))
                if not task.cancelled():
                    inside.append((turn, size))
                    trying[turn] = size

    def leave(number: int) -> None:
        if inside:
            turn, _ = inside.pop(number % len(inside))
            trying.pop(turn, None)
            turn.leave()

    def cancel(number: int) -> None:
        if waiting:
            waiting[number % len(waiting)][2].cancel()

    def claimed(number: int) -> None:
        if inside:
            turn, _ = inside[number % len(inside)]
            trying.pop(turn, None)
            turn.claimed()

    def arrive(number: int) -> None:
        turn, size = gate.turn(), 1 + number % 3
        task = tasks.spawn(turn.enter((f"s{number % 2}",), soon(), size), "one")
        waiting.append((turn, size, task))

    def both(number: int) -> None:
        leave(number)
        cancel(number)

    def may(turn: ClaimTurn, size: int) -> bool:
        if limit and len(inside) >= limit:
            return False
        stuck = len(trying) == len(inside) == limit - 1
        within_limit = sum(not one.over_limit for one in trying)
        if not trying or (within_limit < claiming - 1 and not stuck):
            return True
        if within_limit < claiming and size < min(trying.values()):
            return True
        alone = all(one.lane != turn.lane for one in trying)
        return not stuck and alone and len(trying) - within_limit < claiming

    acts: dict[str, Callable[[int], None]] = {
        "come": arrive,
        "claimed": claimed,
        "leave": leave,
        "cancel": cancel,
        "leave+cancel": both,
    }
    for what, number in story:
        if what == "settle":
            await settle()
            note_entered()
            assert gate.inside == len(inside)
            assert gate.waiting == len(waiting)
            assert gate.claiming == len(trying) <= 2 * claiming
            assert not limit or gate.inside <= limit
            assert not any(
                may(turn, size) for turn, size, _ in waiting
            )  # no turn waits at an open gate
        else:
            acts[what](number)
    await settle()
    note_entered()
    while inside or waiting:
        leave(0)
        await settle()
        note_entered()
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)
