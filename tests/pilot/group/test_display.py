"""Display options of a group: Markdown, differences, folding, hints for a dead group."""

import msgspec

from console.models.screen_registry import SCREENS
from console.screens.group.screen import GroupScreen
from core.events import CandidateFailed, GroupClosed, GroupOpened
from tests.support.console import FakeLink, RunningConsole, group_events, run_console, state_of

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]


async def opened(console: RunningConsole, group_id: str = "g0001") -> None:
    """Show the detail of one group."""
    console.app.push_screen(GroupScreen(group_id))
    await console.settle()


async def test_markdown_is_rendered_and_shown_raw_by_key() -> None:
    texts = ["# Title\n\n- **one**\n- `two`", "b", "c", "d"]
    link = FakeLink(state_of(*group_events(1, texts=texts, until="AWAITING_RATING")))
    link.detail = group_events(1, texts=texts)
    async with run_console(link=link, places=PLACES, at="requests", size=(160, 40)) as console:
        await opened(console)
        assert "• one" in console.text()
        assert "**" not in console.text()
        await console.press("r")
        assert "# Title" in console.text()
        assert "- **one**" in console.text()
        await console.press("r")
        assert "• one" in console.text()


async def test_differences_to_the_other_answers_are_marked() -> None:
    texts = ["The sky is blue today", "The sky looks blue", "The sky is blue today", "x"]
    state = state_of(*group_events(1, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests", size=(160, 40)) as console:
        await opened(console)
        await console.press("d")
        shown = console.text()
        assert "≡ compared with" in shown
        assert "The sky is looks blue today" in shown
        assert "the same text" in shown
        await console.press("right", "d")
        assert "≡" not in console.text()
        assert "The sky looks blue" in console.text()


async def test_a_narrow_screen_shows_the_differences_of_the_next_answer() -> None:
    texts = ["alpha beta", "alpha gamma", "c", "d"]
    state = state_of(*group_events(1, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests", size=(60, 24)) as console:
        await opened(console)
        await console.press("d")
        assert "alpha beta gamma" in console.text()


async def test_a_dead_group_shows_the_keys_that_repair_it() -> None:
    events = [
        *group_events(1, rewards=(0.5,) * 4, until="AWAITING_RATING"),
        *group_events(2, rewards=(0.5,) * 4),
        *group_events(3),
    ]
    async with run_console(
        state_of(*events), places=PLACES, at="requests", size=(120, 36)
    ) as console:
        await opened(console)
        assert "dead: equal rewards" in console.text()
        assert "S score it again" in console.text()
        await console.press("escape")
        await opened(console, "g0002")
        assert "A sends it again" in console.text()
        await console.press("escape")
        await opened(console, "g0003")
        assert "asks it again" not in console.text()


async def test_a_short_group_is_refilled_by_key() -> None:
    state = state_of(
        *group_events(1, until="AWAITING_RATING"),
        CandidateFailed(
            server="embedded", group_id="g0001", index=2, episode_uuid="ep-1-2", cause="timed_out"
        ),
        *group_events(2, until="AWAITING_RATING"),
    )
    async with run_console(state, places=PLACES, at="requests", size=(100, 36)) as console:
        await opened(console, "g0002")
        await console.press("R")
        assert "It is complete: all 4" in console.text()
        await console.press("escape")
        await opened(console)
        assert "3 of 4 candidates answered: R requests the others" in console.text()
        assert "R Refill" in console.text()
        await console.press("R")
        assert console.link.commands == [("group.refill", {"group_id": "g0001"})]


async def test_the_latency_of_a_group_is_shown() -> None:
    events = group_events(1)
    assert isinstance(events[-1], GroupClosed)
    latency = {**events[-1].latency, "first_piece": 0.75, "answered": 6.1, "keepalives": 2}
    events[-1] = msgspec.structs.replace(events[-1], latency=latency)
    async with run_console(
        state_of(*events), places=PLACES, at="requests", size=(120, 36)
    ) as console:
        await opened(console)
        assert "generate 5.7s" in console.text()
        assert "claim 0.2s" not in console.text()
        await console.press("z")
        shown = " ".join(console.text().split())
        assert "first piece 0.75s" in shown or "first piece 0.8s" in shown
        assert "2 keep-alives" in shown
        assert "waited 6.1s" in shown


async def test_unfolding_shows_the_other_ids_of_a_group() -> None:
    async with run_console(
        state_of(*group_events(1)), places=PLACES, at="requests", size=(160, 48)
    ) as console:
        await opened(console)
        assert "r1#g0001" not in console.text()
        await console.press("z")
        assert "r1#g0001" in console.text()
        assert "episode ep-1-3" in console.text()


async def test_a_key_sends_the_request_again() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"), *group_events(2))
    async with run_console(state, places=PLACES, at="requests") as console:
        await opened(console)
        await console.press("S", "A")
        assert console.link.commands == [
            ("group.rescore", {"group_id": "g0001"}),
            ("group.rerun", {"group_id": "g0001"}),
        ]
        await console.press("escape")
        await opened(console, "g0002")
        console.link.commands.clear()
        await console.press("S")
        assert console.link.commands == []
        assert "Already finished" in console.text()


async def test_a_key_copies_the_request_as_curl() -> None:
    link = FakeLink(state_of(*group_events(1)))
    link.state.proxy_url = "http://127.0.0.1:8000"
    link.detail = group_events(1, query="it's $HOME")
    async with run_console(link=link, places=PLACES, at="requests") as console:
        await opened(console)
        copied: list[str] = []
        console.app.copy_to_clipboard = copied.append  # type: ignore[assignment]  # its seam
        await console.press("C")
        assert copied[0].startswith("curl http://127.0.0.1:8000/v1/chat/completions")
        assert "'\"'\"'s $HOME" in copied[0]
        assert isinstance(link.detail[0], GroupOpened)


async def test_an_evicted_group_stays_on_screen() -> None:
    state = state_of(*group_events(1, texts=["kept text", "b", "c", "d"]))
    async with run_console(state, places=PLACES, at="requests", size=(120, 36)) as console:
        await opened(console)
        del console.session.state.groups["g0001"]
        console.session.touch(("clock",))
        await console.settle()
        assert isinstance(console.app.screen, GroupScreen)
        assert "kept text" in console.text()
