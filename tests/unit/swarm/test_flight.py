"""Groups whose episodes are claimed in one turn: who gets what, and what goes back."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from swarm.answers import Claimed, Refused, RefusedKind
from swarm.flight import MOST, Flight
from swarm.line import Line
from swarm.orders import Order

NONE = Refused(RefusedKind.NONE_AVAILABLE, "none free")
OTHER = Refused(RefusedKind.NOT_ROLLING, "ENGINE.WEIGHT_SYNCING")


def order(n: int = 4, kind: str = "train", lane: str = "") -> Order:
    return Order(n, kind, 240.0, None, None, lane)


def episode(number: int) -> Claimed:
    return Claimed(f"uuid-{number}", "http://x/v1", "key", "train", 0.0, 240.0)


def flight(*orders: Order) -> tuple[Flight, list[Refused]]:
    refusals: list[Refused] = []

    def took(one: Order, claimed: Claimed) -> None:
        one.had += 1
        one.held.append(claimed)

    return Flight(orders, took=took, refused=refusals.append), refusals


# --- who gets what ------------------------------------------------------------------------------


def test_the_first_is_complete_before_the_second_has_any() -> None:
    one, two = order(2), order(2)
    found, _ = flight(one, two)
    done = [found.answered(episode(number)) for number in range(4)]
    assert done == [None, one, None, two]
    assert [len(one.held), len(two.held), found.left] == [2, 2, 0]
    assert found.stop is None


def test_a_refusal_is_waited_for_while_the_others_may_still_do() -> None:
    one, two = order(2), order(2)
    found, refusals = flight(one, two)
    found.answered(NONE)
    assert not list(found.loose())
    found.answered(episode(1))
    assert not list(found.loose())
    assert found.answered(episode(2)) is one
    found.answered(episode(3))
    assert list(found.loose()) == [two]
    assert (one.stop, two.stop, refusals) == (None, NONE, [NONE])


def test_an_engine_that_does_not_roll_ends_it_at_once() -> None:
    one, two = order(2), order(2)
    found, _ = flight(one, two)
    found.answered(episode(1))
    found.answered(OTHER)
    assert list(found.loose()) == [one]
    assert (one.stop, two.stop) == (OTHER, OTHER)
    assert not found.wanted


def test_what_nobody_wants_any_more_goes_back() -> None:
    one, two = order(2), order(2)
    found, _ = flight(one, two)
    found.answered(episode(1))
    one.stop = OTHER  # it was cancelled
    one.take()
    assert found.answered(episode(2)) is None
    assert found.answered(episode(3)) is two
    assert found.answered(episode(4)) is None
    assert list(found.loose()) == [one]


def test_a_claim_that_breaks_is_told_to_who_would_have_had_it() -> None:
    one, two = order(1), order(2)
    found, _ = flight(one, two)
    assert found.answered(episode(1)) is one
    error = ValueError("odd")
    found.broken(error)
    assert (one.error, two.error) == (None, error)
    assert two.stop is not None


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=MOST),
    st.lists(st.sampled_from(["episode", "none", "other", "gone", "broken"]), max_size=40),
)
def test_never_do_two_hold_parts(sizes: list[int], answers: list[str]) -> None:
    orders = [order(n) for n in sizes]
    found, _ = flight(*orders)
    back = 0
    granted = 0
    complete: list[Order] = []
    for number, answer in enumerate(answers):
        if not found.left:
            break
        if answer == "episode":
            granted += 1
            if (done := found.answered(episode(number))) is not None:
                complete.append(done)
        elif answer == "broken":
            found.broken(None)
        elif answer == "gone":
            if waiting := [one for one in orders if not (one.complete or one.stopped())]:
                waiting[-1].stop = OTHER
        else:
            found.answered(NONE if answer == "none" else OTHER)
        for one in found.loose():
            back += len(one.take())
        parts = [one for one in orders if one.held and not one.complete]
        assert len(parts) <= 1
        assert all(one.had < one.n for one in parts)
    held = sum(len(one.held) for one in orders)
    assert held + back == granted
    assert complete == [one for one in orders if one.complete]
    if not found.left:
        assert not found.wanted


# --- the line -----------------------------------------------------------------------------------


async def test_who_is_taken_along_and_put_back_keeps_its_place() -> None:
    line, went = Line(), []
    first = order(lane="a")
    assert await line.take(4, "a", first)

    async def one(name: str, mine: Order) -> None:
        went.append((name, await line.take(mine.n, mine.lane, mine)))
        line.release()

    names = ("a1", "b1", "c1", "a2")
    orders = {name: order(lane=name[0]) for name in names}
    async with asyncio.TaskGroup() as tasks:
        for name, mine in orders.items():
            tasks.create_task(one(name, mine))
        await asyncio.sleep(0)
        along = line.along(first, 3)
        assert along == [orders[name] for name in ("b1", "c1", "a1")]
        assert all(one.alongside for one in along)
        line.put_back(along)
        assert not went
        line.release()
    assert went == [("b1", True), ("c1", True), ("a1", True), ("a2", True)]
    assert not line.taken


async def test_lanes_keep_their_turns_when_some_are_put_back() -> None:
    line = Line()
    went: list[str] = []
    first = order()
    assert await line.take(4, "", first)

    async def one(name: str) -> None:
        assert await line.take(4, name[0], orders[name])
        went.append(name)
        line.release()

    orders = {name: order(lane=name[0]) for name in ("a1", "a2", "b1", "a3")}
    async with asyncio.TaskGroup() as tasks:
        for name in orders:
            tasks.create_task(one(name))
        await asyncio.sleep(0)
        line.put_back(line.along(first, 3))
        line.release()
    assert went == ["a1", "b1", "a2", "a3"]
    assert not line.busy


async def test_only_those_that_want_the_same_are_taken_along() -> None:
    line = Line()
    first = order()
    assert await line.take(4, "", first)
    tried = order()
    tried.tried = True
    async with asyncio.TaskGroup() as tasks:
        orders = [order(8), order(), order(kind="eval"), order(), tried]
        waiting = [tasks.create_task(line.take(one.n, one.lane, one)) for one in orders]
        await asyncio.sleep(0)
        along = line.along(first, 7)
        assert along == orders[:2]
        for one in along:
            line.serve(one)
        for _ in range(3):
            line.release()
            await asyncio.sleep(0)
    assert [one.result() for one in waiting] == [False, False, True, True, True]
    assert not orders[4].like(first) or not first.like(orders[4])


async def test_one_that_leaves_while_it_is_along_is_not_put_back() -> None:
    line = Line()
    first = order()
    assert await line.take(4, "", first)
    async with asyncio.TaskGroup() as tasks:
        leaves, stays = order(), order()
        gone = tasks.create_task(line.take(4, "", leaves))
        left = tasks.create_task(line.take(4, "", stays))
        await asyncio.sleep(0)
        along = line.along(first, 2)
        line.release()  # the one that took them along is done already
        assert not line.taken
        gone.cancel()
        await asyncio.sleep(0)
        line.put_back(along)
        assert await left
    line.release()
    assert not line.taken
