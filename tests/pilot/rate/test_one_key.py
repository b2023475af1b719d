"""One key a vote, the default of Rate: a digit votes, the other ratings need Enter."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from console.screens.rate.model import APPEAR_SECONDS
from console.screens.rate.widgets import Answers
from core.events import CandidateFailed, GroupSealed, RatingUndone
from tests.pilot.rate.test_screen import PLACES, order_of, sent_vote, votes, waiting
from tests.support.console import RunningConsole, run_console

TIE_OR_BAD = "a dead group, no signal. Enter sends it, Esc closes"
KEYS = " · > rank, s score, t tie, b bad, k skip"
BEST = ("g0001", "best", (order_of(1)[1],))
RANKING = ("g0001", "ranking", tuple(order_of(1)[place] for place in (2, 0, 3, 1)))
SCORES = dict(zip(order_of(1), (1.0, 0.0, 3 / 9, 6 / 9), strict=True))
Sent = tuple[str, str, object]


async def read_and_press(console: RunningConsole, *keys: str) -> None:
    """Read the group on screen, then press keys."""
    console.clock.now += APPEAR_SECONDS
    await console.press(*keys)


@pytest.mark.parametrize(
    ("keys", "says", "sent"),
    [
        ("", f"1-4 votes: reward 1, others 0{KEYS}", []),
        ("2", "Question 2", [BEST]),
        ("2 enter", "Question 2", [BEST]),
        ("3 1", "✗ 1 is ignored: this group has only just appeared", [(*BEST[:2], RANKING[2][:1])]),
        (">", "ranking: the best one's digit, then the next ones; 3 digits complete it", []),
        ("> 3 1", "ranking: rewards 0.67 – 1.00 –, 3 digits complete it · Enter now: best", []),
        ("> 3 1 4", "ranking: rewards 0.67 0.00 1.00 0.33. Enter sends it, Esc closes", []),
        ("> 3 1 4 2", "2 is ranked already", []),
        ("> 3 1 4 enter", "Question 2", [RANKING]),
        ("> 3 1 enter", "Question 2", [(*BEST[:2], RANKING[2][:1])]),
        ("> 3 1 4 escape", "1-4 votes", []),
        ("> 3 escape 2", "Question 2", [BEST]),
        ("> 3 backspace backspace", "1-4 votes", []),
        ("s", "scores: a digit for answer 1", []),
        ("s 9 0 3", "a digit for answer 4; Enter sends", []),
        ("s 9 0 3 6", "scores: rewards 1.00 0.00 0.33 0.67. Enter sends it, Esc closes", []),
        (
            "s 9 0 3 6 enter",
            "Question 2",
            [("g0001", "scores", tuple(SCORES[index] for index in range(4)))],
        ),
        ("s 9 escape 2", "Question 2", [BEST]),
        ("t", f"tie: rewards 0.50 0.50 0.50 0.50 → {TIE_OR_BAD}", []),
        ("t t", TIE_OR_BAD, []),
        ("t 2", "tie is open: Enter sends it, Esc closes it", []),
        ("t escape 2", "Question 2", [BEST]),
        ("t enter", "Question 2", [("g0001", "tie", None)]),
        ("b", f"all bad: rewards 0.00 0.00 0.00 0.00 → {TIE_OR_BAD}", []),
        ("b b", TIE_OR_BAD, []),
        ("b escape", "1-4 votes", []),
        ("b enter", "Question 2", [("g0001", "bad", None)]),
        ("k", "Question 2", []),
        ("k", "To the end of the queue; its clock goes on", []),
        ("> 3 1 ]", "Question 2", []),
        ("enter", "A digit votes, without Enter", []),
        ("7", "there is no answer 7 to vote for", []),
    ],
)
async def test_what_keys_send_and_say(keys: str, says: str, sent: Sequence[Sent]) -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", size=(100, 30)) as console:
        named = {">": "greater_than_sign", "]": "right_square_bracket"}
        await read_and_press(console, *(named.get(key, key) for key in keys.split()))
        assert votes(console) == sent
        shown = " ".join(console.text().split())
        assert says in shown or any(says in message for message in console.messages), shown


async def test_a_digit_votes_and_moves_on_and_the_held_votes_are_taken_back_one_by_one() -> None:
    async with run_console(waiting(4), places=PLACES, at="rate", size=(120, 30)) as console:
        for number in (1, 2, 3):
            assert f"Question {number}" in console.text()
            await read_and_press(console, "1")
            at = console.clock.now
            console.link.publish(replace(sent_vote(number), rater="anna", at=at))
            await console.settle()
        assert [group for group, _, _ in votes(console)] == ["g0001", "g0002", "g0003"]
        assert "Question 4" in console.text()
        assert "━ last of 3 held: best 1" in console.text()
        for number in (3, 2, 1):
            await console.press("u")
            undone = f"g000{number}"
            assert console.link.commands[-1] == (
                "group.unrate",
                {"group_id": undone, "rater": "anna"},
            )
            console.link.publish(RatingUndone(server="embedded", group_id=undone))
            await console.settle()
            assert f"Question {number}" in console.text()
        await console.press("u")
        assert console.messages[-1] == "You have no vote to undo"
        await console.press("1")
        assert len(votes(console)) == 3, "the group has only just come back"
        await read_and_press(console, "2")
        assert votes(console)[-1] == BEST


async def test_undo_takes_the_newest_held_vote_where_a_later_one_was_sent() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate") as console:
        for number in (1, 2):
            await read_and_press(console, "1")
            at = console.clock.now
            console.link.publish(replace(sent_vote(number), rater="anna", at=at))
            await console.settle()
        console.link.publish(
            GroupSealed(server="embedded", group_id="g0002", rewards=(), best=0, source="human")
        )
        await console.settle()
        await console.press("V")  # no reason for the vote that was sent
        assert len(votes(console)) == 2
        await console.press("u")
        undone = {"group_id": "g0001", "rater": "anna"}
        assert console.link.commands[-1] == ("group.unrate", undone)


async def test_a_digit_counts_once_the_group_was_on_screen_for_a_moment() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate") as console:
        await console.press("2")
        assert "✗ 2 is ignored: this group has only just appeared" in console.text()
        console.clock.now += APPEAR_SECONDS / 2
        await console.press("2")
        assert votes(console) == []
        console.clock.now += APPEAR_SECONDS / 2
        await console.press("2", "2", "2")  # typed ahead: the second group was not on screen yet
        assert votes(console) == [BEST]
        assert "Question 2" in console.text()
        assert "✗ 2 is ignored" in console.text()


async def test_a_vote_goes_to_the_painted_group_though_the_queue_has_changed() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as console:
        console.clock.now += 5
        ended = GroupSealed(server="embedded", group_id="g0001", rewards=(), best=0, source="auto")
        console.link.publish(ended)
        await console.press("2")  # the rater still sees the first group, or nothing of the second
        assert votes(console) == []
        await console.settle()
        assert "Question 2" in console.text()
        console.clock.now += 1
        await console.press("2")
        assert votes(console) == [("g0002", "best", (order_of(2)[1],))]
        args = console.link.commands[-1][1]
        assert args["shown"] == order_of(2)


async def test_answers_that_change_on_screen_close_what_was_typed() -> None:
    failed = CandidateFailed(
        server="embedded", group_id="g0001", index=1, episode_uuid="ep-1-1", cause="gone"
    )
    async with run_console(waiting(1), places=PLACES, at="rate") as console:
        await read_and_press(console, "greater_than_sign", "1", "2", "3")
        console.link.publish(failed)
        await console.settle()
        await console.press("enter")
        assert votes(console) == []
        assert "1-3 votes" in console.text()
        await read_and_press(console, "3")
        rest = [index for index in order_of(1) if index != 1]
        assert votes(console) == [("g0001", "best", (rest[2],))]


async def test_a_double_click_is_a_digit() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate") as console:
        card = console.app.screen.query_one(Answers).children[1]
        await console.pilot.double_click(card)
        await console.settle()
        assert votes(console) == []
        console.clock.now += APPEAR_SECONDS
        await console.pilot.double_click(card)
        await console.settle()
        assert votes(console) == [BEST]


async def test_equal_answers_say_that_a_digit_teaches_nothing() -> None:
    async with run_console(waiting(1, texts=["yes"] * 4), places=PLACES, at="rate") as console:
        assert f"1-4 votes: equal rewards, no signal{KEYS}" in console.text()
    async with run_console(
        waiting(1, texts=["yes", "yes", "no", "so"]), places=PLACES, at="rate"
    ) as console:
        assert f"1-4 votes: 1, equal ones 1, others 0{KEYS}" in console.text()
