"""The Rate screen: keys, the votes they send, and the mapping of places to candidates."""

import pytest
from msgspec.structs import replace
from textual.screen import Screen

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.screens.group.widgets import Candidates
from console.screens.rate.ballot import Ballot, shown_order
from console.screens.rate.model import Guidelines
from console.screens.rate.screen import RateScreen
from console.screens.rate.widgets import RateAside
from console.session.app_state import EVERYTHING
from console.widgets.pane import TextPane
from core.events import (
    AlertRaised,
    AnswerReturned,
    CandidateFailed,
    ConsoleAttached,
    EngineChanged,
    Event,
    GroupRated,
    GroupSealed,
    RatingAwaited,
    RatingModeChanged,
    RatingUndone,
    SentReward,
)
from core.state import State
from tests.support.console import (
    BY_ENTER,
    HOSTILE,
    NOW,
    FakeReply,
    RunningConsole,
    group_events,
    run_console,
    state_of,
)

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]


def waiting(count: int = 3, mode: str = "answer_first", **more: object) -> State:
    """Groups that wait; g0001 has the shortest clock."""
    events: list[Event] = [RatingModeChanged(mode=mode)]
    for number in range(1, count + 1):
        events += group_events(
            number,
            query=str(more.get("query") or f"Question {number}"),
            texts=more.get("texts"),  # type: ignore[arg-type]  # passed through
            at=NOW + number - 10,
            until="AWAITING_RATING",
        )
    return state_of(*events)


def order_of(number: int) -> tuple[int, ...]:
    """Candidate index at each place."""
    return shown_order(f"g{number:04}", range(4))


def sent_vote(number: int) -> GroupRated:
    """The proxy has taken the vote for the first place of a group."""
    best = order_of(number)[0]
    rewards = tuple(float(index == best) for index in range(4))
    name = f"g{number:04}"
    return GroupRated(
        server="embedded", group_id=name, rating="best", order=(best,), rewards=rewards
    )


def votes(console: RunningConsole) -> list[tuple[str, str, object]]:
    """Group, rating, and order or scores of each vote that was sent."""
    return [
        (args["group_id"], args["rating"], args.get("order") or args.get("scores"))
        for name, args in console.link.commands
        if name == "group.rate"
    ]


async def test_votes_refer_to_candidates_despite_shuffling() -> None:
    async with run_console(waiting(6), places=PLACES, at="rate", rating=BY_ENTER) as console:
        assert "6 to rate" in console.text()
        await console.press("2", "enter")
        await console.press("3", "1", "4", "2")
        await console.press("1", "3", "enter")
        assert votes(console) == [
            ("g0001", "best", (order_of(1)[1],)),
            ("g0002", "ranking", tuple(order_of(2)[place] for place in (2, 0, 3, 1))),
            ("g0003", "best", (order_of(3)[0],)),
        ]
        assert console.link.commands[0][1]["rater"] == "anna"
        group = console.session.state.groups["g0001"]
        assert console.link.commands[0][1]["note"] == Ballot(group).note()
        console.link.commands.clear()
        await console.press("s", "9", "0", "3", "6")
        scores = dict(zip(order_of(4), (1.0, 0.0, 3 / 9, 6 / 9), strict=True))
        assert votes(console) == [("g0004", "scores", tuple(scores[index] for index in range(4)))]
        await console.press("k")
        assert "To the end of the queue" in console.text()
        assert len(votes(console)) == 1
        assert console.app.current_mode == "rate"


async def test_answers_are_blind_until_revealed() -> None:
    texts = [f"word{index}" for index in range(4)]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", rating=BY_ENTER, size=(160, 40)
    ) as console:
        shown = console.text()
        assert [shown.index(texts[index]) for index in order_of(1)] == sorted(
            shown.index(text) for text in texts
        )
        assert "winner" not in shown
        assert "0.90" not in shown
        await console.press("v")
        shown = console.text()
        assert "▲ winner" in shown
        assert "0.90" in shown
        await console.press("1", "enter")
        ((_, vote),) = console.link.commands
        assert vote["blind"] is False
        assert vote["note"].startswith("revealed before the vote")


async def test_the_meaning_of_a_vote_is_shown_before_sending() -> None:
    async with run_console(waiting(), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("3")
        assert "0.00 0.00 1.00 0.00" in console.text()
        await console.press("t")
        assert "dead group" in console.text()
        await console.press("b")
        assert "all bad" in console.text()
        assert votes(console) == []
        await console.press("b", "t", "enter")
        assert votes(console) == [("g0001", "bad", None), ("g0002", "tie", None)]


async def test_a_digit_without_a_group_explains_itself() -> None:
    async with run_console(waiting(0), at="rate") as console:
        await console.press("0", "enter")
        assert "No group is waiting for a vote" in console.text()
        assert "F2 shows all requests" in console.text()
        assert votes(console) == []
        console.link.publish(*group_events(1, at=NOW, until="AWAITING_RATING"))
        await console.settle()
        assert "1 to rate" in console.text()
        assert "No group is waiting" not in console.text()


async def test_digits_never_switch_screens() -> None:
    async with run_console(waiting(0), at="rate") as console:
        await console.press("2")
        assert console.app.current_mode == "rate"
        assert "No group is waiting for a vote" in console.text()
        await console.press("f2")
        assert console.app.current_mode == "requests"
        assert votes(console) == []


async def test_enter_without_a_vote_shows_no_repeated_message() -> None:
    async with run_console(
        waiting(1), places=PLACES, at="rate", size=(100, 60), rating=BY_ENTER
    ) as console:
        await console.press("enter")
        assert console.text().count("1-4 best") == 1
        await console.press("question_mark")
        assert "1-9          Best" in console.text()


async def test_the_abort_dialog_does_not_reveal_the_winner() -> None:
    state = waiting(1)
    state.groups["g0001"].returned = order_of(1)[2]
    async with run_console(state, places=PLACES, at="rate") as console:
        await console.press("x")
        assert "The user has been answered." in console.text()
        await console.press("escape", "v", "x")
        assert "answered, with answer 3." in console.text()


async def test_a_read_only_console_cannot_vote_and_has_no_rating_tools() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", read_only=True) as console:
        assert "o switches" not in console.text()
        assert "view only: v shows" in console.text()
        await console.press("1", "enter", "t", "t", "k", "s", "x")
        console.link.publish(
            AlertRaised(key="hold:embedded", cause="3 open ratings hold up the weight update"),
            ConsoleAttached(consoles=2),
            EngineChanged(server="embedded", state="ROLLING_POST", step=2),
        )
        await console.settle()
        await console.press("A", "X", "e", "w", "1", "enter")
        assert console.link.commands == []


async def test_the_last_vote_is_held_then_sent_and_can_be_undone() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        console.link.publish(sent_vote(1))
        await console.settle()
        assert order_of(1)[0] == 1
        assert "last: best 1 = #2 (automatic: 1 = #2)" in console.text()
        assert "held, sends in 0:11" in console.text()
        assert "1 to rate  1 rated, held" in console.text()
        await console.press("u")
        assert console.link.commands[-1] == ("group.unrate", {"group_id": "g0001", "rater": "anna"})
        console.link.publish(RatingUndone(server="embedded", group_id="g0001"))
        await console.settle()
        assert "Question 1" in console.text()
        await console.press("2", "enter")
        sent = tuple(
            SentReward(index=index, reward=reward, advantage=0.0)
            for index, reward in enumerate(sent_vote(1).rewards)
        )
        console.link.publish(
            sent_vote(1),
            GroupSealed(server="embedded", group_id="g0001", rewards=sent, best=1, source="human"),
        )
        await console.settle()
        assert "· sent" in console.text()
        console.link.commands.clear()
        await console.press("u")
        assert console.link.commands == []
        assert "Already finished" in console.text()


async def test_a_success_is_shown_in_the_last_line_without_a_toast() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.reply = FakeReply(message="group g0001 is sealed")
        await console.press("a")
        await console.press("m")
        await console.press("x", "y")
        await console.press("2", "enter", "u")
        assert [name for name, _ in console.link.commands] == [
            "group.accept",
            "group.mark",
            "group.abort",
            "group.rate",
            "group.unrate",
        ]
        assert not console.messages
        assert "group g0001 is sealed" in console.text().splitlines()[-2]
        console.link.refuse = AjetError("group g0001 is over")
        await console.press("a")
        assert console.messages == ["group g0001 is over"]


async def test_undo_is_not_offered_after_the_clock() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        assert [name for name, _ in console.link.commands] == ["group.rate"]
        best = order_of(1)[0]
        console.link.publish(
            GroupRated(server="embedded", group_id="g0001", rating="best", order=(best,))
        )
        await console.settle()
        assert "u undoes it" in console.text()
        assert "u Undo" in console.text()
        console.clock.now += 60
        await console.settle()
        assert "being sent" in console.text()
        assert "u undoes it" not in console.text()
        assert "u Undo" not in console.text()
        console.link.commands.clear()
        await console.press("u")
        assert console.link.commands == []
        assert "too late" in console.text()


async def test_the_footer_has_the_keys_that_work_and_fits() -> None:
    async with run_console(waiting(0), places=PLACES, at="rate", rating=BY_ENTER) as console:
        for key in ("1-4", "Send", "Score", "Skip", "Undo", "Show", "Abort"):
            assert key not in console.text().splitlines()[-1]
        assert "o Mode" in console.text()
        console.link.publish(*group_events(1, until="AWAITING_RATING"))
        await console.settle()
        await console.settle()
        foot = console.text().splitlines()[-1]
        for key in ("1-4 Best", "x Abort", "t Tie", "b Bad", "o Mode", "^q Quit ? Help"):
            assert key in foot
        await console.press("1", "enter")
        console.link.publish(sent_vote(1), *group_events(2, at=NOW, until="AWAITING_RATING"))
        await console.settle()
        foot = console.text().splitlines()[-1]
        assert "u Undo" in foot
        assert "x Abort" in foot


async def test_a_group_with_a_refused_vote_comes_back() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.refuse = AjetError("group g0001 is already sealed")
        await console.press("1", "enter")
        assert "Question 1" in console.text()
        console.link.refuse, console.link.reply = None, FakeReply()
        await console.press("4", "enter")
        assert votes(console)[-1] == ("g0001", "best", (order_of(1)[3],))
        assert "No group is waiting for your rating" in console.text()


async def test_answers_of_the_previous_group_are_never_painted_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with run_console(waiting(1), places=PLACES, at="rate") as console:
        console.link.publish(sent_vote(1))
        await console.settle()
        assert "No group is waiting for your rating" in console.text()
        cards = console.app.screen.query_one(Candidates)
        painted: list[str] = []
        paint = Screen._compositor_refresh

        def noted(screen: Screen[object]) -> None:
            if cards.display and cards.size:
                painted.extend(
                    child.text for child in cards.query_children(TextPane) if child.display
                )
            paint(screen)

        monkeypatch.setattr(Screen, "_compositor_refresh", noted)
        for event in group_events(2, texts=list("abcd"), at=NOW - 2, until="AWAITING_RATING"):
            console.link.publish(event)
        await console.settle()
        assert any("a" in text for text in painted)
        assert not any("answer" in text for text in painted)


async def test_no_key_reaches_the_next_group_when_a_clock_runs_out() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1")
        console.link.publish(
            GroupSealed(server="embedded", group_id="g0001", rewards=(), best=0, source="auto")
        )
        await console.settle()
        assert "Question 2" in console.text()
        await console.press("2", "3", "4", "1", "t", "t", "k")
        assert votes(console) == []
        console.clock.now += 1.0
        await console.press("2", "enter")
        assert votes(console) == [("g0002", "best", (order_of(2)[1],))]


async def test_moving_to_the_next_group_sends_the_typed_vote() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("right_square_bracket")
        assert votes(console) == []
        assert "Question 2" in console.text()
        await console.press("2", "right_square_bracket")
        assert votes(console) == [("g0002", "best", (order_of(2)[1],))]
        assert "Question 3" in console.text()
        await console.press("t", "left_square_bracket")
        assert len(votes(console)) == 1


async def test_panels_give_way_to_a_long_answer() -> None:
    """Panels appear with content, and only where they cut no answer."""
    guidelines = Guidelines(text="Prefer short answers.", version="1")
    async with run_console(waiting(1), places=PLACES, at="rate", size=(120, 36)) as console:
        aside = console.app.screen.query_one(RateAside)
        assert not aside.display  # nothing to show yet
        screen = console.app.screen
        assert isinstance(screen, RateScreen)
        screen.queue.guidelines = guidelines
        screen.update_view(EVERYTHING)
        await console.settle()
        assert aside.display
        assert "Prefer short answers." in console.text()
        assert "SESSION" not in console.text()
    texts = ["word " * 100 + f"end{index}" for index in range(4)]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", size=(120, 36)
    ) as console:
        screen = console.app.screen
        assert isinstance(screen, RateScreen)
        screen.queue.guidelines = guidelines
        screen.update_view(EVERYTHING)
        await console.settle()
        assert all(f"end{index}" in console.text() for index in range(4))
        assert "Prefer short answers." not in console.text()
        await console.press("tab", "z")
        assert f"end{order_of(1)[0]}" in console.text()


async def test_failed_candidates_are_counted_and_cannot_be_chosen() -> None:
    failed = CandidateFailed(
        server="embedded", group_id="g0001", index=1, episode_uuid="ep-1-1", cause="gone"
    )
    state = waiting(1)
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.publish(failed)
        await console.press("escape", "right_square_bracket")
        assert "1 candidate failed" in console.text()
        await console.press("4")
        assert votes(console) == []


async def test_the_mode_is_switched_by_a_digit() -> None:
    async with run_console(waiting(0, mode="off"), places=PLACES, at="rate") as console:
        assert "No group is waiting for your rating" in console.text()
        assert "mode off" in console.text()
        await console.press("o", "1")
        assert console.link.commands == []
        await console.press("o", "2", "o", "3")
        expected = [("rating.mode", {"mode": mode}) for mode in ("answer_first", "hold")]
        assert console.link.commands == expected


async def test_hostile_text_at_both_sizes() -> None:
    texts = [HOSTILE, "x" * 1_000_000, "漢字" * 3_000, "\u200b" * 400]
    async with run_console(
        waiting(2, query=HOSTILE, texts=texts), places=PLACES, at="rate"
    ) as console:
        for size in ((80, 24), (160, 48), (60, 15)):
            await console.pilot.resize_terminal(*size)
            await console.press("tab", "v")
            assert "\x1b" not in console.text()
            assert "\u202e" not in console.text()
            assert "[/b]" in console.text()


async def test_the_result_of_a_key_is_shown_for_a_while() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate") as console:
        console.link.reply = FakeReply(message="2 groups are sealed")
        await console.press("a")
        assert "2 groups are sealed" in console.text()
        console.clock.now += 5
        await console.settle()
        assert "2 groups are sealed" in console.text()
        console.clock.now += 4
        await console.settle()
        assert "2 groups are sealed" not in console.text()


def held(number: int, since: float, clock: float, query: str = "") -> list[Event]:
    """A group in mode hold: its user has no answer and its clock ends `clock` seconds from now."""
    events = group_events(
        number, query=query or f"Held {number}", at=NOW - since, until="AWAITING_RATING"
    )
    stored = [event for event in events if not isinstance(event, AnswerReturned)]
    awaited = stored.pop()
    assert isinstance(awaited, RatingAwaited)
    return [*stored, replace(awaited, until=NOW + clock, why="hold")]


async def test_a_waiting_user_comes_before_a_shorter_clock() -> None:
    answered = group_events(1, query="Answered", at=NOW - 16, until="AWAITING_RATING")  # 4 s left
    state = state_of(
        RatingModeChanged(mode="hold"), *answered, *held(2, since=14, clock=170), *held(3, 9, 160)
    )
    async with run_console(
        state, places=PLACES, at="rate", rating=BY_ENTER, size=(120, 30)
    ) as console:
        shown = console.text()
        assert "Held 3" in shown, "of two users, the one with the shorter clock leads"
        assert "user waits 0:09" in shown
        assert "open for 2:40" in shown
        assert "3 to rate, 2 users wait 0:14" in console.text().splitlines()[0]
        await console.press("1", "enter")
        console.link.publish(sent_vote(3))
        await console.shows("Held 2")
        assert "user waits 0:14" in console.text()


async def test_a_held_request_counts_as_in_flight_and_is_listed() -> None:
    state = state_of(RatingModeChanged(mode="hold"), *held(1, since=14, clock=170))
    async with run_console(state, places=PLACES, at="requests", size=(120, 30)) as console:
        assert "1 in flight" in console.text().splitlines()[0]
        assert "waits 0:14" in console.text()
        assert "1 to rate, user waits 0:14" in console.text().splitlines()[0]
