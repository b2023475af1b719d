"""Display options of a group: Markdown, differences, folding, hints for a dead group."""

import msgspec

from console.models.screen_registry import SCREENS
from console.screens.group import GroupScreen
from core.events import CandidateFailed, GroupClosed, GroupOpened
from tests.support.console import FakeLink, RunningConsole, group_events, run_console, state_of

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]


async def opened(here: RunningConsole, group_id: str = "g0001") -> None:
    """Show the detail of one group."""
    here.app.push_screen(GroupScreen(group_id))
    await here.settle()


async def test_markdown_is_rendered_and_shown_raw_by_key() -> None:
    texts = ["# Title\n\n- **one**\n- `two`", "b", "c", "d"]
    link = FakeLink(state_of(*group_events(1, texts=texts, until="AWAITING_RATING")))
    link.detail = group_events(1, texts=texts)
    async with run_console(link=link, places=PLACES, at="requests", size=(160, 40)) as here:
        await opened(here)
        assert "• one" in here.text()
        assert "**" not in here.text()
        await here.press("r")
        assert "# Title" in here.text()
        assert "- **one**" in here.text()
        await here.press("r")
        assert "• one" in here.text()


async def test_differences_to_the_other_answers_are_marked() -> None:
    texts = ["The sky is blue today", "The sky looks blue", "The sky is blue today", "x"]
    state = state_of(*group_events(1, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests", size=(160, 40)) as here:
        await opened(here)
        await here.press("d")
        shown = here.text()
        assert "≡ compared with" in shown
        assert "The sky is looks blue today" in shown
        assert "the same text" in shown
        await here.press("right", "d")
        assert "≡" not in here.text()
        assert "The sky looks blue" in here.text()


async def test_a_narrow_screen_shows_the_differences_of_the_next_answer() -> None:
    texts = ["alpha beta", "alpha gamma", "c", "d"]
    state = state_of(*group_events(1, texts=texts, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="requests", size=(60, 24)) as here:
        await opened(here)
        await here.press("d")
        assert "alpha beta gamma" in here.text()


async def test_a_dead_group_shows_the_keys_that_repair_it() -> None:
    events = [
        *group_events(1, rewards=(0.5,) * 4, until="AWAITING_RATING"),
        *group_events(2, rewards=(0.5,) * 4),
        *group_events(3),
    ]
    async with run_console(state_of(*events), places=PLACES, at="requests", size=(120, 36)) as here:
        await opened(here)
        assert "dead: equal rewards" in here.text()
        assert "S score it again" in here.text()
        await here.press("escape")
        await opened(here, "g0002")
        assert "A sends it again" in here.text()
        await here.press("escape")
        await opened(here, "g0003")
        assert "asks it again" not in here.text()


async def test_a_short_group_is_refilled_by_key() -> None:
    state = state_of(
        *group_events(1, until="AWAITING_RATING"),
        CandidateFailed(
            server="embedded", group_id="g0001", index=2, episode_uuid="ep-1-2", cause="timed_out"
        ),
        *group_events(2, until="AWAITING_RATING"),
    )
    async with run_console(state, places=PLACES, at="requests", size=(100, 36)) as here:
        await opened(here, "g0002")
        await here.press("R")
        assert "It is complete: all 4" in here.text()
        await here.press("escape")
        await opened(here)
        assert "3 of 4 candidates answered: R requests the others" in here.text()
        assert "R Refill" in here.text()
        await here.press("R")
        assert here.link.commands == [("group.refill", {"group_id": "g0001"})]


async def test_the_latency_of_a_group_is_shown() -> None:
    events = group_events(1)
    assert isinstance(events[-1], GroupClosed)
    latency = {**events[-1].latency, "first_piece": 0.75, "answered": 6.1, "keepalives": 2}
    events[-1] = msgspec.structs.replace(events[-1], latency=latency)
    async with run_console(state_of(*events), places=PLACES, at="requests", size=(120, 36)) as here:
        await opened(here)
        shown = " ".join(here.text().split())
        assert "first piece 0.75s" in shown or "first piece 0.8s" in shown
        assert "2 keep-alives" in shown
        assert "waited 6.1s" in shown


async def test_unfolding_shows_the_other_ids_of_a_group() -> None:
    async with run_console(
        state_of(*group_events(1)), places=PLACES, at="requests", size=(160, 48)
    ) as here:
        await opened(here)
        assert "r1#g0001" not in here.text()
        await here.press("z")
        assert "r1#g0001" in here.text()
        assert "episode ep-1-3" in here.text()


async def test_a_key_sends_the_request_again() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"), *group_events(2))
    async with run_console(state, places=PLACES, at="requests") as here:
        await opened(here)
        await here.press("S", "A")
        assert here.link.commands == [
            ("group.rescore", {"group_id": "g0001"}),
            ("group.rerun", {"group_id": "g0001"}),
        ]
        await here.press("escape")
        await opened(here, "g0002")
        here.link.commands.clear()
        await here.press("S")
        assert here.link.commands == []
        assert "Already finished" in here.text()


async def test_a_key_copies_the_request_as_curl() -> None:
    link = FakeLink(state_of(*group_events(1)))
    link.state.proxy_url = "http://127.0.0.1:8000"
    link.detail = group_events(1, query="it's $HOME")
    async with run_console(link=link, places=PLACES, at="requests") as here:
        await opened(here)
        copied: list[str] = []
        here.app.copy_to_clipboard = copied.append  # type: ignore[assignment]  # its seam
        await here.press("C")
        assert copied[0].startswith("curl http://127.0.0.1:8000/v1/chat/completions")
        assert "'\"'\"'s $HOME" in copied[0]
        assert isinstance(link.detail[0], GroupOpened)


async def test_an_evicted_group_stays_on_screen() -> None:
    state = state_of(*group_events(1, texts=["kept text", "b", "c", "d"]))
    async with run_console(state, places=PLACES, at="requests", size=(120, 36)) as here:
        await opened(here)
        del here.session.state.groups["g0001"]
        here.session.touch(("clock",))
        await here.settle()
        assert isinstance(here.app.screen, GroupScreen)
        assert "kept text" in here.text()
