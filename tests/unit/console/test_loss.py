"""What the question before a restart of the proxy says of groups that wait for a rating."""

from console.loss import waiting_loss
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
