"""Weights, gates and switches of parts, from the Rewards screen and the palette."""

from typing import Any

from textual.widgets import Input

from ajet_swarm.common.errors import AjetError
from console.screens.dialogs.confirm import AskScreen, ConfirmScreen
from console.shell.palette import entries
from console.text.format import UNKNOWN
from core.events import Event, RewardPart, RewardsChanged
from tests.pilot.rewards.test_screen import parted
from tests.support.console import HOSTILE, NOW, run_console, state_of

PARTS = (
    RewardPart(name="finished", kind="finished", gate=True),
    RewardPart(name="politeness", kind="hook", weight=0.5),
    RewardPart(name="brevity", kind="length", weight=0.5),
    RewardPart(name=f"off {HOSTILE}", kind="length", enabled=False),
)


def changed(parts: tuple[RewardPart, ...] = PARTS) -> list[Event]:
    result = RewardsChanged(
        source="/h/rewards.yaml", ok=True, version="v1", parts=parts, at=NOW - 900
    )
    return [result, *parted(1), *parted(2)]


async def test_a_key_asks_for_a_weight_and_sends_it() -> None:
    async with run_console(state_of(*changed()), at="rewards") as console:
        await console.press("W")
        assert isinstance(console.app.screen, AskScreen)
        assert "Applies from the" in console.text()
        assert console.app.screen.query_one(Input).value == "0.5"
        console.app.screen.query_one(Input).value = "heavy"
        await console.press("enter")
        assert not console.link.commands
        assert "heavy is not a number" in console.text()
        assert console.app.screen.query_one(Input).value == "heavy"
        console.link.refuse = AjetError("weight 7 is over 1")
        console.app.screen.query_one(Input).value = "7"
        await console.press("enter")
        assert "weight 7 is over 1" in console.text()
        console.link.refuse = None
        console.link.commands.clear()
        console.app.screen.query_one(Input).value = "0.8"
        await console.press("enter")
    assert _weights(console.link.commands) == [("rewards.weight", 0.8)]


async def test_a_gate_has_no_weight_to_set() -> None:
    async with run_console(state_of(*changed()), at="rewards") as console:
        assert "W Set weight" in console.text()
        await console.press("home")
        assert "M Gate" in console.text()
        assert "W Set weight" not in console.text()
        await console.press("W")
        assert not isinstance(console.app.screen, AskScreen)


def _weights(commands: list[Any]) -> list[Any]:
    return [(name, args["weight"]) for name, args in commands]


async def test_gate_and_switch_are_confirmed() -> None:
    async with run_console(state_of(*changed()), at="rewards") as console:
        for key, word in (("M", "a gate?"), ("O", "off?")):
            await console.press(key)
            assert isinstance(console.app.screen, ConfirmScreen)
            assert word in console.text()
            assert "Applies from the" in console.text()
            await console.press("escape")
        assert not console.link.commands


async def test_every_part_has_a_row_before_its_first_group_and_when_it_is_off_or_gone() -> None:
    result = changed()
    async with run_console(state_of(result[0]), at="rewards") as console:
        rows = [line for line in console.text().splitlines() if "no group yet" in line]
        assert [row.split()[:3] for row in rows[:3]] == [
            ["finished", "gate", UNKNOWN],
            ["politeness", "weighted", "0.50"],
            ["brevity", "weighted", "0.50"],
        ]
        assert " off " in rows[3]
        await console.press("down", "down", "down")
        assert "O switches it on" in console.text()
        await console.press("O")
        assert "on?" in console.text()
        await console.press("escape")
        new_parts = (PARTS[0], PARTS[2], RewardPart(name="newer", kind="length"))
        console.link.publish(*result[1:], changed(new_parts)[0])
        console.session.touch(["clock"])
        await console.settle()
        shown = console.text().splitlines()
        row = {line.split()[0]: line.split()[1:] for line in shown if line.split()}
        assert row["politeness"][0] == "gone"
        assert row["newer"][0] == "weighted"
        assert "no group yet" in " ".join(row["newer"])


async def test_the_palette_has_every_part_also_those_that_are_off() -> None:
    async with run_console(state_of(*changed()), at="rewards") as console:
        titles = [title for title, *_ in entries(console.app) if title.startswith("Rewards: ")]
    assert "Rewards: Set weight of brevity" in titles
    assert "Rewards: No gate finished" in titles
    assert "Rewards: Set weight of finished" not in titles
    assert any(title.startswith("Rewards: Switch off") and title[-3:] == " on" for title in titles)


async def test_a_hook_folder_alone_has_no_weights_to_set() -> None:
    one = (RewardPart(name="hook", kind="hook"),)
    async with run_console(state_of(*changed(one)), at="rewards") as console:
        await console.press("W")
        assert not isinstance(console.app.screen, AskScreen)
