"""The order of an origin queue, and the item that a full one removes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.episodes.queue import FairQueue, Origin, item_to_displace


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
