"""The detail of a group: votes, marks, folding, whole texts."""

from typing import cast

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.screens.group.screen import GroupScreen
from core.events import CandidateFailed, EpisodesEnded, GroupClosed, GroupRated
from core.events.causes import NoEpisodes
from tests.support.console import (
    HOSTILE,
    FakeLink,
    RunningConsole,
    group_events,
    run_console,
    state_of,
)
from tests.support.proxy.singles import with_outcome

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]
NOTE = "open; shown 1 2 3 4"


async def opened(
    console: RunningConsole, group_id: str = "g0001", others: list[str] | None = None
) -> None:
    """Show the detail of one group."""
    console.app.push_screen(GroupScreen(group_id, others))
    await console.settle()


async def test_a_digit_votes_at_once_but_tie_bad_and_abort_need_two_keys() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests") as console:
        await opened(console)
        await console.press("1", "4")
        assert console.link.commands == [
            (
                "group.rate",
                {
                    "group_id": "g0001",
                    "rating": "best",
                    "order": (index,),
                    "rater": "anna",
                    "note": NOTE,
                },
            )
            for index in (0, 3)
        ]
        assert console.app.current_mode == "requests"
        for key, rating in (("t", "tie"), ("b", "bad")):
            console.link.commands.clear()
            await console.press(key)
            assert "dead" in console.text()
            await console.press("right", key)
            assert console.link.commands == []
            await console.press(key)
            assert [name for name, _ in console.link.commands] == ["group.rate"]
            assert console.link.commands[0][1]["rating"] == rating
        console.link.commands.clear()
        await console.press("x")
        assert console.link.commands == []
        await console.press("y")
        assert console.link.commands == [("group.abort", {"group_id": "g0001"})]


async def test_the_digit_of_a_missing_answer_does_not_vote() -> None:
    failed = CandidateFailed(
        server="embedded", group_id="g0001", index=2, episode_uuid="ep-1-2", cause="gone"
    )
    state = state_of(*group_events(1, until="AWAITING_RATING"), failed)
    async with run_console(state, places=PLACES, at="requests") as console:
        await opened(console)
        await console.press("3", "7")
        assert console.link.commands == []
        assert "no answer 3" in console.text()


async def test_a_sent_group_cannot_be_rated() -> None:
    refusals = {
        1: "Already finished",
        2: "Already aborted",
        3: "Its candidates are not complete yet",
    }
    events = [
        *group_events(1, until="DONE"),
        *group_events(2, until="ABORTED"),
        *group_events(3, until="GENERATING"),
    ]
    async with run_console(state_of(*events), places=PLACES, at="requests") as console:
        for number, words in refusals.items():
            await opened(console, f"g000{number}")
            await console.press("1", "t", "t", "b", "b", "a")
            assert console.link.commands == []
            assert words in console.text()
            await console.press("escape")


async def test_group_keys_send_their_commands() -> None:
    rated = GroupRated(
        server="embedded", group_id="g0001", rating="best", order=(2,), rewards=(0, 0, 1, 0)
    )
    state = state_of(*group_events(1, until="AWAITING_RATING"), rated)
    async with run_console(state, places=PLACES, at="requests", size=(160, 48)) as console:
        await opened(console)
        for mark in ("▲ winner", "→ returned", "✓ rated best", "rated best #3"):
            assert mark in console.text()
        await console.press("a", "m", "u")
        assert console.link.commands == [
            ("group.accept", {"group_id": "g0001"}),
            ("group.mark", {"group_id": "g0001", "marked": True}),
            ("group.unrate", {"group_id": "g0001", "rater": "anna"}),
        ]


async def test_the_footer_has_the_keys_that_work_and_success_makes_no_toast() -> None:
    rated = GroupRated(server="embedded", group_id="g0001", rating="best", order=(2,))
    events = [
        *group_events(1, until="AWAITING_RATING"),
        rated,
        *group_events(2, until="DONE"),
        *group_events(3, until="GENERATING"),
    ]
    shown = {
        "g0001": ["a Accept", "u Undo", "x Abort", "1-9 Best", "t Tie", "b Bad"],
        "g0002": [],
        "g0003": ["x Abort"],
    }
    async with run_console(state_of(*events), places=PLACES, at="requests") as console:
        for group_id, keys in shown.items():
            await opened(console, group_id)
            await console.settle()
            footer = console.text().splitlines()[-1]
            assert footer.endswith("? Help")
            assert [key for key in shown["g0001"] if key in footer] == keys
            await console.press("escape")
        await opened(console)
        await console.press("1", "m", "a")
        assert len(console.link.commands) == 3
        assert not console.messages


async def test_unconfirmed_rewards_are_shown() -> None:
    events = group_events(1)
    at = next(place for place, event in enumerate(events) if isinstance(event, EpisodesEnded))
    events[at] = with_outcome(cast(EpisodesEnded, events[at]), "unknown")
    async with run_console(state_of(*events), places=PLACES, at="requests") as console:
        assert "≈ unconfirmed" in console.text()
        await opened(console)
        assert "reward sent, not confirmed: #1" in console.text()


async def test_a_group_without_answers_shows_the_cause() -> None:
    closed = GroupClosed(
        server="embedded",
        group_id="g0001",
        phase="ABORTED",
        cause="no episodes in time: none_available",
        cause_kind=NoEpisodes.kind,
        cause_params={"refusal": "none_available"},
    )
    state = state_of(*group_events(1, until="CLAIMING"), closed)
    async with run_console(state, places=PLACES, at="requests", size=(160, 40)) as console:
        await opened(console)
        shown = " ".join(console.text().split())
        assert "no episode yet" not in shown
        assert "none_available" not in shown
        assert "no answer: aborted (no episode in" in shown


async def test_side_by_side_when_wide_and_tabs_when_narrow() -> None:
    texts = ["alpha", "beta", "gamma", "delta"]
    state = state_of(*group_events(1, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests", size=(160, 48)) as console:
        await opened(console)
        assert all(text in console.text() for text in texts)
        await console.pilot.resize_terminal(60, 24)
        await console.settle()
        assert [text in console.text() for text in texts] == [True, False, False, False]
        assert "4 0.10" in console.text()
        await console.press("right", "right")
        assert [text in console.text() for text in texts] == [False, False, True, False]
        await console.press("left")
        assert [text in console.text() for text in texts] == [False, True, False, False]


async def test_cut_texts_are_fetched_in_full() -> None:
    end = "the very end"
    events = group_events(1, texts=["word " * 900 + end, "b", "c", "d"], until="AWAITING_RATING")
    link = FakeLink(state_of(*events))
    link.detail = events
    async with run_console(link=link, places=PLACES, at="requests", size=(160, 60)) as console:
        await opened(console)
        await console.press("r")
        detail = console.app.screen.target.detail  # type: ignore[attr-defined]  # our screen
        assert detail.whole(0).endswith(end)
        copied: list[str] = []
        console.app.copy_to_clipboard = copied.append  # type: ignore[assignment]  # its seam
        await console.press("c")
        assert copied[0].endswith(end)


async def test_a_whole_text_that_cannot_be_read_says_so() -> None:
    class Deaf(FakeLink):
        async def group_events(self, group_id: str) -> list[object]:  # type: ignore[override]  # it raises
            raise AjetError("the journal is locked")

    link = Deaf(state_of(*group_events(1, until="AWAITING_RATING")))
    async with run_console(link=link, places=PLACES, at="requests") as console:
        await opened(console)
        await console.press("r")
        assert "locked" in console.text()


async def test_brackets_lead_to_the_next_group_of_the_list() -> None:
    events = [
        event
        for number in (1, 2, 3)
        for event in group_events(number, query=f"Q{number}", until="AWAITING_RATING")
    ]
    async with run_console(state_of(*events), places=PLACES, at="requests") as console:
        await opened(console, "g0002", ["g0003", "g0002", "g0001"])
        await console.press("left_square_bracket")
        assert console.app.screen.target_group == "g0003"  # type: ignore[attr-defined]  # our screen
        await console.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert console.app.screen.target_group == "g0001"  # type: ignore[attr-defined]  # our screen
        await console.press("2")
        assert console.link.commands[0][1]["group_id"] == "g0001"


async def test_hostile_answers_are_shown_safely() -> None:
    texts = [HOSTILE, "x" * 1_000_000, "漢" * 5_000, "\u200b" * 500 + "e\u0301" * 2_000]
    state = state_of(*group_events(1, query=HOSTILE, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests") as console:
        await opened(console)
        for size in ((80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            for key in ("right", "z", "r", "right"):
                await console.press(key)
            assert "\x1b" not in console.text()
            assert "\u202e" not in console.text()
            assert "[/b]" in console.text()
