"""Wide and tall terminals: charts, panels and borders; none of these at 80x24."""

from pathlib import Path

from textual.widget import Widget

from console.widgets.item_list import ItemList
from core.settings import RatingSettings
from core.state import State
from tests.support.checks import missing
from tests.support.console import RunningConsole, run_console
from tests.support.proxy.rewards import STARTED, scored, state_with, two
from tests.support.sample import sample_state, state_of

WIDE, SMALL = (160, 48), (80, 24)


def borders(console: RunningConsole) -> dict[str, str]:
    """Border by the id of each widget that has one."""
    return {
        child.id or type(child).__name__: str(child.styles.border_top[1].hex)
        for child in console.app.screen.walk_children(Widget)
        if child.display and child.styles.border_top[0] == "round"
    }


async def test_a_small_terminal_has_no_borders() -> None:
    async with run_console(sample_state(), size=SMALL) as console:
        for size in (SMALL, WIDE, SMALL):
            await console.pilot.resize_terminal(*size)
            for key in ("f1", "f3", "f5", "f6"):
                await console.press(key)
                assert bool(borders(console)) is (size == WIDE), key


async def test_the_panel_in_focus_has_the_accent_colour() -> None:
    async with run_console(sample_state(), size=WIDE, at="rewards") as console:
        accent = str(console.app.theme_variables["accent"])
        result = borders(console)
        assert result["rewards-parts"].lower() == accent.lower()
        assert result["rewards-best"].lower() != accent.lower()


async def test_rewards_shows_charts_of_the_part_under_the_cursor() -> None:
    state = state_with(*(scored(number, [two(0.9, 0.2), two(0.1, 0.3)]) for number in range(1, 9)))
    async with run_console(state, size=WIDE, at="rewards") as console:
        text = console.text()  # not of the gate that leads: its charts would be empty
        assert not missing(
            text, "LEFT", "VALUES", "SPREAD  16 answers", "BY RANK", "BEST ANSWERS", "WORST"
        )
        assert "answer 0 to: Why is the sky blue?" in text
        await console.press("down")
        assert "RIGHT" in console.text()


async def test_a_click_within_a_border_selects_the_row_under_it() -> None:
    state = state_with(scored(1, [two(0.9, 0.2), two(0.1, 0.3)]))
    async with run_console(state, size=WIDE, at="rewards") as console:
        parts = console.app.screen.query_one(ItemList)
        await console.pilot.click(ItemList, offset=(8, 3))  # border, titles, the first part
        assert parts.cursor == "left"
        await console.pilot.click(ItemList, offset=(8, 0))
        assert parts.cursor == "left"


async def test_empty_charts_explain_their_future_content() -> None:
    async with run_console(state_of(STARTED), size=WIDE, at="rewards") as console:
        assert "The curve of a part starts with the first scored group" in console.text()
    async with run_console(State(), size=WIDE, at="engine") as console:
        assert "A server's state, pool, steps and curves appear here" in console.text()


async def test_engine_shows_curves_beside_the_table() -> None:
    async with run_console(sample_state(), size=WIDE, at="engine") as console:
        rows = console.text().split("\n")
        curves = [row for row in rows if "KL 0.110" in row or "reward 0.74" in row]
        assert len(curves) == 2
        assert any("PROCESSES" in row for row in rows)


async def test_a_group_shows_its_reward_parts_as_bars() -> None:
    state = state_with(scored(1, [two(0.9, 0.2), two(0.1, 0.3)]))
    async with run_console(state, size=WIDE, at="requests") as console:
        await console.press("enter")
        assert not missing(
            console.text(), "REWARD BY PART", "▲ #1 is 0.35 above #2: left +0.40, right -0.05"
        )
        await console.pilot.resize_terminal(*SMALL)
        await console.settle()
        assert "REWARD BY PART" not in console.text()


async def test_rate_shows_guidelines_reference_and_session(tmp_path: Path) -> None:
    state = sample_state()
    for group in state.groups.values():
        group.reference = "scattered light"
    guidelines = tmp_path / "guidelines.md"
    guidelines.write_text("Prefer short answers.")
    async with run_console(state, size=WIDE) as console:
        console.session.rating = RatingSettings(guidelines=str(guidelines))
        await console.press("f3")
        await console.shows("GUIDELINES")
        assert "SESSION" not in console.text()
        await console.shows("Prefer short answers.")
        text = console.text()
        assert not missing(text, "REFERENCE", "appears after your vote")
        assert "scattered light" not in text
        await console.press("v")
        assert "scattered light" in console.text()
