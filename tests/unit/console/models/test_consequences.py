"""The losses that the questions before an order name."""

import msgspec

from console.screens.requests.marked import abort_cost
from core.commands.plan_engines import stop_loss, waiting_loss
from core.events import EngineChanged, Event, GroupLost, GroupSealed, PoolChanged, RatingAwaited
from tests.support.sample import NOW, group_events, state_of


def test_a_restart_states_the_fate_of_waiting_groups() -> None:
    def waits(number: int, fallback: str, why: str) -> list[Event]:
        awaited = RatingAwaited(
            group_id=f"g{number:04}", until=NOW + 60, fallback=fallback, why=why, at=NOW
        )
        return [*group_events(number, at=NOW - 9, until="AWAITING_RATING"), awaited]

    state = state_of(
        *waits(1, "accept", "answer_first"),
        *waits(2, "accept", "hold"),
        *waits(3, "abort", "abstained"),
        *waits(4, "accept", "window"),
    )
    assert waiting_loss(state) == [
        "2 groups wait for your rating: after 10 s the automatic rewards are sent for unrated "
        "groups.",
        "1 group waits for your rating: after 10 s unrated groups are given up, nothing is sent.",
    ]
    assert waiting_loss(state_of()) == []


def test_an_abort_before_any_episode_is_claimed_says_so() -> None:
    state = state_of(*group_events(1, at=NOW, until="CLAIMING"))
    (group,) = state.groups.values()
    assert abort_cost(state, [group]).startswith("No episode is claimed.")


def test_a_stop_states_the_number_of_human_rated_groups_in_the_pool() -> None:
    def engine(state: str, at: float, step: int = 7) -> Event:
        return EngineChanged(server="embedded", state=state, step=step, at=at)

    def by_hand(number: int, at: float, server: str = "embedded") -> list[Event]:
        return [
            msgspec.structs.replace(event, source="human")
            if isinstance(event, GroupSealed)
            else event
            for event in group_events(number, at=at, step=7, server=server)
        ]

    def pool(tasks: int) -> Event:
        return PoolChanged(server="embedded", completed_tasks=tasks, at=NOW)

    def pool_line(*events: Event) -> str:
        state = state_of(*events)
        (line,) = [one for one in stop_loss(state, state.servers["embedded"]) if "The pool" in one]
        return line

    story = [
        engine("ROLLING", NOW - 300, step=6),
        *by_hand(1, NOW - 290),
        engine("WEIGHT_SYNCING", NOW - 200, step=6),
        engine("ROLLING", NOW - 100),
        *by_hand(2, NOW - 90),
        *by_hand(3, NOW - 80),
        *by_hand(4, NOW - 80, server="other"),
        *group_events(5, at=NOW - 70, step=7),
        engine("ROLLING_POST", NOW - 50),
        pool(3),
    ]
    assert pool_line(*story).endswith(": 3 tasks, 2 human-rated.")
    assert pool_line(*story, pool(1)).endswith(": 1 task, 1 human-rated.")
    lost = GroupLost(server="embedded", group_id="g0002", cause="an engine restart")
    assert pool_line(*story, lost).endswith(": 3 tasks, 1 human-rated.")
    again = [engine("OFFLINE", NOW - 40), engine("ROLLING", NOW - 30), pool(1)]
    assert pool_line(*story, *again).endswith("is discarded: 1 task.")
    assert pool_line(*story, engine("WEIGHT_SYNCING", NOW - 20)).endswith("is discarded: 3 tasks.")
