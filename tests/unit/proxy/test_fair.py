"""The gate: turns between sessions, its limits, nothing lost when waiters go."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tasks import Tasks
from proxy.fair import FairGate, Turn


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

    def __init__(self, gate: FairGate) -> None:
        self.gate = gate
        self.inside: list[tuple[str, Turn]] = []
        self.order: list[str] = []
        self.late: list[str] = []

    async def come(self, name: str, session: str, deadline: float | None = None) -> None:
        turn = self.gate.turn()
        try:
            await turn.enter(session, deadline or soon())
        except TimeoutError:
            self.late.append(name)
            return
        turn.claimed()
        self.order.append(name)
        self.inside.append((name, turn))

    def leave(self) -> None:
        self.inside.pop(0)[1].leave()


async def test_a_session_with_one_request_does_not_wait_for_one_with_a_hundred() -> None:
    line = Line(FairGate(1))
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(line.come(f"a{number}", "a"))
        await settle()
        group.create_task(line.come("b0", "b"))
        group.create_task(line.come("b1", "b"))
        group.create_task(line.come("c0", "c"))
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
    gate = FairGate(0, claiming=2)
    turns = [gate.turn() for _ in range(5)]
    waits = [tasks.spawn(turn.enter(f"s{i}", soon()), f"{i}") for i, turn in enumerate(turns)]
    await settle()
    assert [task.done() for task in waits] == [True, True, False, False, False]
    turns[0].claimed()
    turns[0].claimed()  # another round of the same group
    await settle()
    assert [task.done() for task in waits] == [True, True, True, False, False]
    turns[1].leave()  # without ever having got its episodes
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


async def test_a_turn_that_does_not_come_in_time() -> None:
    gate = FairGate(1)
    first, second, third = gate.turn(), gate.turn(), gate.turn()
    await first.enter("a", soon())
    with pytest.raises(TimeoutError):
        await second.enter("b", asyncio.get_running_loop().time() + 0.01)
    with pytest.raises(TimeoutError):
        await second.enter("b", asyncio.get_running_loop().time() - 1.0)
    assert gate.waiting == 0
    second.leave()
    assert gate.inside == 1
    first.leave()
    await third.enter("c", asyncio.get_running_loop().time() - 1.0)  # free: no wait, no timeout
    assert gate.inside == 1


async def test_who_is_cancelled_at_the_moment_of_its_turn_passes_it_on(tasks: Tasks) -> None:
    gate = FairGate(1)
    first, second, third = gate.turn(), gate.turn(), gate.turn()
    await first.enter("a", soon())
    gone = tasks.spawn(second.enter("b", soon()), "b")
    waits = tasks.spawn(third.enter("c", soon()), "c")
    await settle()
    first.leave()
    gone.cancel()
    await settle()
    assert gone.cancelled()
    assert waits.done()
    third.leave()
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)


async def test_a_helper_call_has_a_turn_of_its_own(tasks: Tasks) -> None:
    gate = FairGate(1)
    blocker, helper = gate.turn(), gate.turn("s title")
    await blocker.enter("s", soon())
    mains = [gate.turn() for _ in range(3)]
    waits = [tasks.spawn(turn.enter("s", soon()), "main") for turn in mains]
    aside = tasks.spawn(helper.enter("s", soon()), "helper")
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


@settings(max_examples=150, deadline=None)
@given(moves, st.integers(0, 3), st.integers(1, 3))
def test_no_wake_up_is_lost_whatever_happens(story: list[Move], limit: int, claiming: int) -> None:
    asyncio.run(_story(story, limit, claiming))


async def _story(story: list[Move], limit: int, claiming: int) -> None:
    async with Tasks("story") as tasks:
        await _told(story, FairGate(limit, claiming), tasks, limit, claiming)


async def _told(story: list[Move], gate: FairGate, tasks: Tasks, limit: int, claiming: int) -> None:
    waiting: list[tuple[Turn, asyncio.Task[None]]] = []
    inside: list[Turn] = []

    def pick(number: int, of: list[Turn]) -> Turn | None:
        return of[number % len(of)] if of else None

    def look() -> None:
        for turn, task in tuple(waiting):
            if task.done():
                waiting.remove((turn, task))
                if not task.cancelled():
                    inside.append(turn)

    def leave(number: int) -> None:
        if (turn := pick(number, inside)) is not None:
            inside.remove(turn)
            turn.leave()

    def cancel(number: int) -> None:
        if waiting:
            waiting[number % len(waiting)][1].cancel()

    def claimed(number: int) -> None:
        if (turn := pick(number, inside)) is not None:
            turn.claimed()

    def come(number: int) -> None:
        turn = gate.turn()
        waiting.append((turn, tasks.spawn(turn.enter(f"s{number % 3}", soon()), "one")))

    def both(number: int) -> None:
        leave(number)
        cancel(number)

    acts: dict[str, Callable[[int], None]] = {
        "come": come,
        "claimed": claimed,
        "leave": leave,
        "cancel": cancel,
        "leave+cancel": both,
    }
    for what, number in story:
        if what == "settle":
            await settle()
            look()
            assert gate.inside == len(inside)
            assert gate.waiting == len(waiting)
            assert not limit or gate.inside <= limit
            assert gate.claiming <= claiming
            free = gate.claiming < claiming and (not limit or gate.inside < limit)
            assert not (free and waiting)  # nobody waits before an open gate
        else:
            acts[what](number)
    await settle()
    look()
    while inside or waiting:
        leave(0)
        await settle()
        look()
    assert (gate.inside, gate.claiming, gate.waiting) == (0, 0, 0)
