"""The order of a queue with shares, and who gives way when it is full."""

from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.claims.shares import FairQueue, Lane, crowding


def drained(shares: FairQueue[str]) -> list[str]:
    """All items in the order of their turns."""
    found = []
    while shares:
        lane, item = next(iter(shares))
        assert shares.first() == item
        shares.served(lane, item)
        assert shares.remove(lane, item)
        found.append(item)
    return found


def test_keys_take_turns_then_addresses_then_sessions() -> None:
    shares: FairQueue[str] = FairQueue()
    for lane in ("AxS", "AxS", "AxT", "AyS", "BxS", "BxS"):
        shares.push(tuple(lane), lane)
    shares.push(("C", "x", "S"), "CxS")
    assert drained(shares) == ["AxS", "BxS", "CxS", "AyS", "BxS", "AxT", "AxS"]


def test_what_is_put_back_goes_first() -> None:
    shares: FairQueue[str] = FairQueue()
    for name in ("a1", "b1", "a2"):
        shares.push((name[0],), name)
    first = [next(iter(shares))]
    shares.served(first[0][0])
    shares.remove(*first[0])
    shares.put_back(*first[0])
    assert drained(shares) == ["a1", "b1", "a2"]
    assert not shares.remove(("a",), "a1")


def test_the_newest_newcomer_of_a_sender_has_every_second_turn() -> None:
    shares: FairQueue[str] = FairQueue()
    for number in range(6):
        shares.push(("A", ""), f"A{number}", newcomer=True)
    for number in range(2):
        shares.push(("A", "S"), f"S{number}")
    shares.push(("B", ""), "B")
    assert [item for _, item in shares] == ["A5", "A0", "A1", "A2", "A3", "A4", "S0", "S1", "B"]
    assert shares.remove(("A", ""), "A4")
    order = drained(shares)
    assert order[1] == "B"
    order.remove("B")
    assert order == ["A5", "S0", "A3", "S1", "A2", "A0", "A1"]


def test_one_item_beside_many_that_keep_coming_again() -> None:
    """What is sent again at once on connections in use does not keep a newcomer waiting."""
    shares: FairQueue[str] = FairQueue()
    for number in range(100):
        shares.push(("A", ""), f"old {number}")
    shares.served(*next(iter(shares)))
    shares.push(("A", ""), "one", newcomer=True)
    assert next(iter(shares))[1] == "one"


coming = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("ab"), st.booleans()))


@given(coming)
def test_each_item_has_one_turn_whoever_passes(items: list[tuple[str, str, bool]]) -> None:
    shares: FairQueue[str] = FairQueue()
    names = [f"item {number}" for number in range(len(items))]
    for name, (sender, session, newcomer) in zip(names, items, strict=True):
        shares.push((sender, session), name, newcomer)
    assert sorted(item for _, item in shares) == sorted(names)
    assert sorted(drained(shares)) == sorted(names)


lanes = st.lists(st.tuples(*[st.sampled_from("abc")] * 3), max_size=40)


@given(lanes, st.tuples(*[st.sampled_from("abc")] * 3))
def test_nobody_keeps_more_than_half_while_others_ask(waiting: list[Lane], lane: Lane) -> None:
    """Whatever waits, one more of a sender with less than a third gets in."""
    pairs = [(one, number) for number, one in enumerate(waiting)]
    found = crowding(pairs, lane)
    mine = sum(one[0] == lane[0] for one in waiting)
    most = max((sum(one[0] == key for one in waiting) for key in "abc"), default=0)
    assert (found is not None) or most <= mine + 1
    if found is not None and most > mine + 1:
        gives_way = waiting[found]
        assert sum(one[0] == gives_way[0] for one in waiting) == most
        assert not any(one == gives_way for one in waiting[found + 1 :])
