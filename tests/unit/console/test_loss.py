"""What the questions before an order say that it costs."""

from console.bulk import abort_cost
from console.loss import abort_loss, waiting_loss
from core.events import Event, RatingAwaited
from tests.support.console import NOW, group_events, state_of


def test_a_restart_says_what_becomes_of_groups_that_wait() -> None:
    def waits(number: int, fallback: str, why: str) -> list[Event]:
        told = RatingAwaited(
            group_id=f"g{number:04}", until=NOW + 60, fallback=fallback, why=why, at=NOW
        )
        return [*group_events(number, at=NOW - 9, until="AWAITING_RATING"), told]

    state = state_of(
        *waits(1, "accept", "answer_first"),
        *waits(2, "accept", "hold"),
        *waits(3, "abort", "abstained"),
        *waits(4, "accept", "window"),
    )
    assert waiting_loss(state) == [
        "2 groups wait for your rating: after 10 s the automatic reward is sent for what is "
        "unrated",
        "1 group waits for your rating: after 10 s what is unrated is given up, nothing is sent",
    ]
    assert waiting_loss(state_of()) == []


def test_an_abort_before_any_episode_is_claimed_says_so() -> None:
    state = state_of(*group_events(1, at=NOW, until="CLAIMING"))
    (group,) = state.groups.values()
    assert "No episode is claimed." in abort_loss(state, group)
    assert "1 group: no episode is claimed for them now." in abort_cost(state, [group])
