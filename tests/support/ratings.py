"""Groups that wait for a vote or were rated, and the rating queue over them."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from console.screens.rate.ballot import shown_order
from console.screens.rate.model import RateQueue
from console.session.app_state import Session
from core.events import (
    EpisodesEnded,
    Event,
    GroupClosed,
    GroupRated,
    GroupSealed,
    RatingAwaited,
    SentReward,
    VoteCast,
)
from core.settings import RatingSettings
from core.state import State
from core.state.common import record_of
from tests.support.sample import NOW, group_events, state_of


def queue_of(
    state: State, clock: Callable[[], float] = lambda: NOW, *, rater: str = "", repeats: float = 0.0
) -> RateQueue:
    """The rating queue of a console with this state."""
    session = Session(clock=clock, rater=rater, rating=RatingSettings(repeats=repeats))
    session.state = state
    return RateQueue(session)


def waiting_state(*numbers: int) -> State:
    """Groups that await a rating; the clock of the first one is the shortest."""
    events = []
    for place, number in enumerate(numbers):
        events += group_events(number, at=NOW + place, until="AWAITING_RATING")
    return state_of(*events)


def sent(number: int, best: int = 0, *, blind: bool = True, rater: str = "anna") -> list[Event]:
    """A group that was rated at its number's second and sent."""
    whole = group_events(number, at=NOW - 300 + number)
    rewards = tuple(float(index == best) for index in range(4))
    shown = shown_order(f"g{number:04}", range(4))
    rated = GroupRated(
        server="embedded",
        group_id=f"g{number:04}",
        rating="best",
        order=(best,),
        rewards=rewards,
        rater=rater,
        blind=blind,
        shown=shown,
        tags=("style",),
        at=NOW - 290 + number,
    )
    sealed = GroupSealed(
        server="embedded",
        group_id=f"g{number:04}",
        rewards=tuple(
            SentReward(index=index, reward=reward, advantage=0.0)
            for index, reward in enumerate(rewards)
        ),
        best=best,
        source="human",
    )
    at = next(place for place, event in enumerate(whole) if isinstance(event, GroupSealed))
    return [*whole[:at], rated, sealed, *whole[at + 1 :]]


def rated_state(count: int, **more: object) -> State:
    """Groups that were rated and sent."""
    return state_of(*(event for number in range(1, count + 1) for event in sent(number, **more)))  # type: ignore[arg-type]  # passed through


def best(index: int) -> tuple[float, ...]:
    """Rewards of a vote for one of four answers."""
    return tuple(float(index == place) for place in range(4))


def voted(number: int, votes: dict[str, int], *, sent: bool = True) -> list[Event]:
    """A group with the votes of several raters, 10 s apart."""
    about: dict[str, Any] = {"group_id": f"g{number:04}", "server": "embedded"}
    at = NOW + 100 * number
    events: list[Event] = [
        *group_events(number, at=at, until="AWAITING_RATING"),
        RatingAwaited(**about, until=at + 600, fallback="accept", why="answer_first", overlap=2),
    ]
    for place, (rater, index) in enumerate(votes.items()):
        rewards = best(index)
        events.append(
            VoteCast(
                **about,
                at=at + 10 * place,
                rating="best",
                order=(index,),
                rewards=rewards,
                rater=rater,
                holder=f"c-{rater}",
            )
        )
    if sent:
        mean = [
            sum(best(vote)[place] for vote in votes.values()) / len(votes) for place in range(4)
        ]
        names = tuple(votes)
        events += [
            GroupRated(**about, rating="scores", rewards=tuple(mean), rater="x", raters=names),
            GroupSealed(
                **about,
                rewards=tuple(
                    SentReward(index=place, reward=one, advantage=0.0)
                    for place, one in enumerate(mean)
                ),
                best=0,
                source="human",
                spread=1.0,
                version="v1",
                dead="",
            ),
        ]
    return events


def missed(number: int, *, sent: bool = True, overlap: int = 1, **more: Any) -> list[Event]:
    """The events of a group that ended before its vote: by the automatic rewards, or aborted."""
    events, waiting = [], group_events(number, until="AWAITING_RATING", **more)
    for event in [*waiting, *group_events(number, **more)[len(waiting) - 1 :]]:
        if isinstance(event, RatingAwaited):
            event = replace(event, why="answer_first", overlap=overlap)
        elif isinstance(event, GroupSealed):
            event = replace(event, unrated=True)
        elif isinstance(event, GroupClosed) and not sent:
            event = replace(event, phase="ABORTED", cause="not rated in time")
        if sent or not isinstance(event, GroupSealed | EpisodesEnded):
            events.append(event)
    return events


def late(number: int, best: int, rater: str = "ada", *, overlap: int = 1) -> list[Event]:
    """The events of a late vote for one answer; with an overlap of 1 they complete the group."""
    vote = VoteCast(
        server="embedded",
        group_id=f"g{number:04}",
        rating="best",
        order=(best,),
        rewards=tuple(float(index == best) for index in range(4)),
        rater=rater,
        blind=True,
        shown=(0, 1, 2, 3),
    )
    events: list[Event] = [vote, record_of(GroupRated, vote, raters=(rater,))]
    return events[: 3 - overlap]
