"""The judges on the Rewards screen, in both sizes."""

import pytest

from core.events import AlertRaised
from tests.pilot.rewards.test_screen import in_use
from tests.support.console import NOW, run_console
from tests.unit.console.screens.test_judges import changed, spent


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_each_judge_has_a_line(size: tuple[int, int]) -> None:
    state = in_use(changed(), spent(), spent("old", priced=False))
    async with run_console(state, at="rewards", size=size) as console:
        text = console.text()
        for words in ("/group", "helpful", "31.2k", "judge-1 · listwise", "no price"):
            assert words in text, words
        assert "brevity" in text
        console.link.publish(spent(calls=999))
        await console.settle()
        assert "999" in console.text()


async def test_without_a_judge_there_is_no_table() -> None:
    async with run_console(in_use(), at="rewards") as console:
        assert "/group" not in console.text()


async def test_judge_trouble_shows_its_cause_and_the_alert_opens_this_screen() -> None:
    cause = "the judge's key is missing: the environment variable K is not set"
    state = in_use(
        changed(f"{cause}. Set it", "helpful"),
        spent(trouble=cause),
        AlertRaised(key="judge", cause=cause, todo="6 shows it", level="error", at=NOW - 1),
    )
    async with run_console(state) as console:
        assert "the judge's key is missing" in console.text()
        await console.press("6")
        text = console.text()
        assert "judge helpful in trouble" in text
        assert "K is not set" in text
        assert "see its fault" in text
