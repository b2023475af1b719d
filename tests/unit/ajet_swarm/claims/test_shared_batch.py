"""Groups whose episodes are claimed in one turn: which group gets which, and what is returned."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.claims.lane_queue import Lane
from ajet_swarm.claims.queue import TurnQueue
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.claims.shared_batch import MOST, SharedBatch

NONE = ClaimRefused(RefusedKind.NONE_AVAILABLE, "none free")
OTHER = ClaimRefused(RefusedKind.NOT_ROLLING, "ENGINE.WEIGHT_SYNCING")


def request(n: int = 4, kind: str = "train", lane: Lane = ()) -> ClaimRequest:
    return ClaimRequest(n, kind, 240.0, None, None, lane)


def episode(number: int) -> Claimed:
    return Claimed(f"uuid-{number}", "http://x/v1", "key", "train", 0.0, 240.0)


def batch(*requests: ClaimRequest) -> tuple[SharedBatch, list[ClaimRefused]]:
    refusals: list[ClaimRefused] = []

    def grant(one: ClaimRequest, claimed: Claimed) -> None:
        one.granted += 1
        one.held.append(claimed)

    return SharedBatch(requests, took=grant, refused=refusals.append), refusals


# --- distribution -------------------------------------------------------------------------------


def test_the_first_group_completes_before_the_second_gets_an_episode() -> None:
    one, two = request(2), request(2)
    value, _ = batch(one, two)
    done = [value.answered(episode(number)) for number in range(4)]
    assert done == [None, one, None, two]
    assert [len(one.held), len(two.held), value.left] == [2, 2, 0]
    assert value.stop is None


def test_after_a_refusal_the_remaining_claims_may_still_complete_a_group() -> None:
    one, two = request(2), request(2)
    value, refusals = batch(one, two)
    value.answered(NONE)
    assert not list(value.to_return())
    value.answered(episode(1))
    assert not list(value.to_return())
    assert value.answered(episode(2)) is one
    value.answered(episode(3))
    assert list(value.to_return()) == [two]
    assert (one.stop, two.stop, refusals) == (None, NONE, [NONE])


def test_an_engine_that_does_not_roll_stops_the_batch_at_once() -> None:
    one, two = request(2), request(2)
    value, _ = batch(one, two)
    value.answered(episode(1))
    value.answered(OTHER)
    assert list(value.to_return()) == [one]
    assert (one.stop, two.stop) == (OTHER, OTHER)
    assert not value.is_incomplete


def test_an_episode_that_no_request_needs_is_given_back() -> None:
    one, two = request(2), request(2)
    value, _ = batch(one, two)
    value.answered(episode(1))
    one.stop = OTHER  # it was cancelled
    one.take_held()
    assert value.answered(episode(2)) is None
    assert value.answered(episode(3)) is two
    assert value.answered(episode(4)) is None
    assert list(value.to_return()) == [one]


def test_a_claim_that_fails_unexpectedly_fails_the_request_it_would_serve() -> None:
    one, two = request(1), request(2)
    value, _ = batch(one, two)
    assert value.answered(episode(1)) is one
    error = ValueError("odd")
    value.broken(error)
    assert (one.error, two.error) == (None, error)
    assert two.stop is not None


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=MOST),
    st.lists(st.sampled_from(["episode", "none", "other", "gone", "broken"]), max_size=40),
)
def test_two_requests_never_hold_parts_at_the_same_time(
    sizes: list[int], answers: list[str]
) -> None:
    requests = [request(n) for n in sizes]
    value, _ = batch(*requests)
    back = 0
    granted = 0
    complete: list[ClaimRequest] = []
    for number, answer in enumerate(answers):
        if not value.left:
            break
        if answer == "episode":
            granted += 1
            if (done := value.answered(episode(number))) is not None:
                complete.append(done)
        elif answer == "broken":
            value.broken(None)
        elif answer == "gone":
            if waiting := [one for one in requests if not (one.complete or one.stopped())]:
                waiting[-1].stop = OTHER
        else:
            value.answered(NONE if answer == "none" else OTHER)
        for one in value.to_return():
            back += len(one.take_held())
        parts = [one for one in requests if one.held and not one.complete]
        assert len(parts) <= 1
        assert all(one.granted < one.n for one in parts)
    held = sum(len(one.held) for one in requests)
    assert held + back == granted
    assert complete == [one for one in requests if one.complete]
    if not value.left:
        assert not value.is_incomplete


# --- the queue ----------------------------------------------------------------------------------


async def test_a_sharing_request_that_is_put_back_keeps_its_place() -> None:
    queue, turns = TurnQueue(), []
    first = request(lane=("a",))
    assert await queue.take(first)

    async def one(name: str, mine: ClaimRequest) -> None:
        turns.append((name, await queue.take(mine)))
        queue.release()

    names = ("a1", "b1", "c1", "a2")
    requests = {name: request(lane=(name[0],)) for name in names}
    async with asyncio.TaskGroup() as tasks:
        for name, mine in requests.items():
            tasks.create_task(one(name, mine))
        await asyncio.sleep(0)
        along = queue.share(first, 3)
        assert along == [requests[name] for name in ("b1", "c1", "a1")]
        assert all(one.shared for one in along)
        queue.put_back(along)
        assert not turns
        queue.release()
    assert turns == [("b1", True), ("c1", True), ("a1", True), ("a2", True)]
    assert not queue.taken


async def test_lanes_keep_their_turns_when_some_are_put_back() -> None:
    queue = TurnQueue()
    turns: list[str] = []
    first = request()
    assert await queue.take(first)

    async def one(name: str) -> None:
        assert await queue.take(requests[name])
        turns.append(name)
        queue.release()

    requests = {name: request(lane=(name[0],)) for name in ("a1", "a2", "b1", "a3")}
    async with asyncio.TaskGroup() as tasks:
        for name in requests:
            tasks.create_task(one(name))
        await asyncio.sleep(0)
        queue.put_back(queue.share(first, 3))
        queue.release()
    assert turns == ["a1", "b1", "a2", "a3"]
    assert not queue.busy


async def test_a_newcomer_that_is_put_back_is_not_overtaken_by_those_that_arrived_before_it() -> (
    None
):
    queue = TurnQueue()
    turns: list[str] = []
    first = request()
    assert await queue.take(first)

    async def one(name: str, arrived: float) -> None:
        mine = request(lane=("a", ""))
        mine.newcomer, mine.arrived = True, arrived
        requests[name] = mine
        assert await queue.take(mine)
        turns.append(name)

    requests: dict[str, ClaimRequest] = {}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(one("old 1", 1.0))
        tasks.create_task(one("old 2", 2.0))
        tasks.create_task(one("new", 9.0))
        await asyncio.sleep(0)
        for number in range(3, 6):  # each turn, another one comes from the queue before this one
            along = queue.share(first, 2)
            assert requests["new"] in along
            queue.put_back(along)
            tasks.create_task(one(f"old {number}", float(number)))
            await asyncio.sleep(0)
        for _ in range(6):
            queue.release()
            await asyncio.sleep(0)
        queue.release()
    assert turns == ["new", "old 1", "old 5", "old 2", "old 4", "old 3"]
    assert not queue.busy


async def test_only_requests_of_the_same_kind_share_a_turn() -> None:
    queue = TurnQueue()
    first = request()
    assert await queue.take(first)
    tried = request()
    tried.refused_before = True
    async with asyncio.TaskGroup() as tasks:
        requests = [request(8), request(), request(kind="eval"), request(), tried]
        waiting = [tasks.create_task(queue.take(one)) for one in requests]
        await asyncio.sleep(0)
        along = queue.share(first, 7)
        assert along == requests[:2]
        for one in along:
            queue.serve(one)
        for _ in range(3):
            queue.release()
            await asyncio.sleep(0)
    assert [one.result() for one in waiting] == [False, False, True, True, True]
    assert not requests[4].may_share(first) or not first.may_share(requests[4])


async def test_a_sharing_request_whose_caller_left_is_not_put_back() -> None:
    queue = TurnQueue()
    first = request()
    assert await queue.take(first)
    async with asyncio.TaskGroup() as tasks:
        leaves, stays = request(), request()
        cancelled = tasks.create_task(queue.take(leaves))
        left = tasks.create_task(queue.take(stays))
        await asyncio.sleep(0)
        along = queue.share(first, 2)
        queue.release()  # the one that took them along is done already
        assert not queue.taken
        cancelled.cancel()
        await asyncio.sleep(0)
        queue.put_back(along)
        assert await left
    queue.release()
    assert not queue.taken
