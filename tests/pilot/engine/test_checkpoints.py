"""The checkpoint list: its keys, its dialogs, its availability."""

from collections.abc import Sequence
from typing import Any

from console.models.available_commands import available_commands, save_name
from console.screens.dialogs.confirm import ConfirmScreen
from console.screens.engine.widgets import CheckpointPanel
from console.screens.run_command import run_available
from console.session.app_state import Session
from console.shell.palette import entries
from core.commands.plan_engines import prune_loss, restore_loss
from core.events import Checkpoint, CheckpointsListed, EngineChanged, Event
from core.state import Server, State
from tests.support.console import (
    HOSTILE,
    NOW,
    Clock,
    RunningConsole,
    run_console,
    sample_events,
    state_of,
)

SAVED = (
    Checkpoint(name="latest", step=11, at=NOW - 4, bytes=11_200_000, kept=True),
    Checkpoint(name="step-000010", step=10, at=NOW - 75, bytes=11_200_000),
    Checkpoint(name="broken", step=-1, at=NOW - 400, bytes=5_000, damaged=True),
    Checkpoint(name="step-000005", step=5, at=NOW - 4_000, bytes=11_200_000),
    Checkpoint(name="before-reset", step=40, at=NOW - 90_000, bytes=11_200_000, kept=True),
)


def events(
    *more: Event, saved: Sequence[Checkpoint] = SAVED, at: Sequence[Event] | None = None
) -> list[Event]:
    result = list(sample_events() if at is None else at)
    return [*result, CheckpointsListed(server="embedded", checkpoints=tuple(saved)), *more]


def orders(console: RunningConsole) -> list[tuple[str, dict[str, Any]]]:
    return console.link.commands


def footer(console: RunningConsole) -> str:
    return console.text().splitlines()[-1]


OFFLINE = EngineChanged(server="embedded", state="OFFLINE", step=0)


async def test_the_list_shows_each_checkpoint_and_the_focus_moves_on_past_its_ends() -> None:
    async with run_console(state_of(*events()), size=(80, 40), at="engine") as console:
        for size in ((160, 48), (80, 40)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            text = console.text()
            for words in (
                "CHECKPOINTS  5",
                "latest",
                "just now",
                "step 10",
                "1m ago",
                "✖ damaged",
                "1h ago",
                "11.2 MB",
            ):
                assert words in text, words
        await console.press("tab", "up")
        assert not isinstance(console.app.focused, CheckpointPanel)
        await console.press("tab", "down", "down")
        assert "b Restore" not in footer(console)  # it is damaged
        await console.press("b")
        assert "Engine: Restore" not in console.text()
        await console.press("down")
        assert "b Restore" in footer(console)
        await console.press("down")
        assert isinstance(console.app.focused, CheckpointPanel)
        await console.press("down")
        assert not isinstance(console.app.focused, CheckpointPanel)


async def test_a_server_without_checkpoints_has_no_list_and_no_keys() -> None:
    async with run_console(state_of(*sample_events()), size=(100, 40), at="engine") as console:
        assert "CHECKPOINTS" not in console.text()
        await console.press("w", "tab", "b", "z", "d", "c")
        assert orders(console) == []
        assert "Save" not in footer(console)
        titles = [title for title, _, _ in entries(console.app)]
        assert not [title for title in titles if "checkpoint" in title or "base" in title]


async def test_save_asks_for_a_name_and_proposes_one() -> None:
    async with run_console(state_of(*events()), at="engine") as console:
        assert "c Resume" not in footer(console)
        await console.press("w")
        assert "hand-000011" in console.text()
        await console.press("m", "enter")
        assert orders(console) == [("engine.save", {"server": "embedded", "name": "m"})]
        await console.press("w", "escape")
        assert len(orders(console)) == 1


async def test_the_palette_offers_checkpoint_commands_and_refuses_an_unknown_name() -> None:
    async with run_console(state_of(*events()), at="engine") as console:
        titles = [title for title, _, _ in entries(console.app)]
        for title in ("Save a checkpoint", "Restore a checkpoint", "Prune checkpoints"):
            assert f"Engine: {title}" in titles
        assert "Engine: Resume" not in titles
        offer = next(
            offer
            for offer in available_commands(console.session, None, "embedded")
            if offer.command == "engine.restore" and offer.ask
        )
        run_available(console.app, offer)
        await console.settle()
        await console.press(*["backspace"] * 20, *"step-00010", "enter")
        result = " ".join(console.messages)
        assert "There is no checkpoint `step-00010`. Did you mean `step-000010`?" in result
        assert not isinstance(console.app.screen, ConfirmScreen)
        assert not orders(console)


async def test_restore_confirms_the_cost_of_the_checkpoint_under_the_cursor() -> None:
    async with run_console(state_of(*events()), size=(80, 40), at="engine") as console:
        assert "Restore" not in footer(console)
        await console.press("tab", "down")
        assert "b Restore" in footer(console)
        await console.press("b")
        text = console.text()
        assert "step-000010: saved 1m ago, after update 10." in text
        assert "1 update since then is given up." in text
        assert "8 claimed episodes of yours are lost." in text
        assert "up to the last update is kept" not in text
        await console.press("enter")
        assert orders(console) == []
        await console.press("b", "y")
        assert orders(console) == [
            ("engine.restore", {"server": "embedded", "name": "step-000010"})
        ]


async def test_reset_and_prune_ask_first() -> None:
    async with run_console(state_of(*events()), size=(80, 40), at="engine") as console:
        await console.press("tab", "z")
        text = console.text()
        assert "11 updates since then are given up." in text
        assert "kept as before-reset" in text
        await console.press("y")
        await console.press("d")
        assert "Number of named checkpoints to keep" in console.text()
        await console.press("1", "enter")
        text = " ".join(console.text().split())
        assert "2 checkpoints are deleted permanently: broken," in text
        assert "step-000005." in text
        await console.press("y")
        assert orders(console) == [
            ("engine.reset", {"server": "embedded"}),
            ("engine.prune", {"server": "embedded", "keep": 1}),
        ]


async def test_an_engine_that_is_offline_can_be_resumed() -> None:
    async with run_console(state_of(*events(OFFLINE)), size=(100, 40), at="engine") as console:
        assert "c resumes it with the job it has" in console.text()
        assert "c Resume" in footer(console)
        await console.press("c")
        assert orders(console) == [("engine.resume", {"server": "embedded"})]
        await console.press("tab", "b")
        assert "The engine stays OFFLINE" in " ".join(console.text().split())


async def test_the_cursor_stays_on_its_checkpoint_while_new_ones_arrive() -> None:
    async with run_console(state_of(*events()), size=(80, 40), at="engine") as console:
        await console.press("tab", "down")
        panel = console.app.screen.query_one(CheckpointPanel)
        assert panel.chosen is not None
        assert panel.chosen.name == "step-000010"
        newer = Checkpoint(name="step-000012", step=12, at=NOW)
        console.link.publish(CheckpointsListed(server="embedded", checkpoints=(newer, *SAVED)))
        await console.settle()
        assert panel.chosen.name == "step-000010"
        console.link.publish(CheckpointsListed(server="embedded", checkpoints=(newer,)))
        await console.settle()
        assert panel.chosen.name == "step-000012"
        console.link.publish(CheckpointsListed(server="embedded", offered=False))
        await console.settle()
        assert "CHECKPOINTS" not in console.text()


async def test_read_only_shows_the_list_and_has_no_keys() -> None:
    async with run_console(
        state_of(*events()), size=(80, 40), at="engine", read_only=True
    ) as console:
        assert "step-000010" in console.text()
        await console.press("w", "tab", "b", "d", "z")
        assert orders(console) == []
        assert "Restore" not in footer(console)


async def test_hostile_names_stay_text() -> None:
    bad = Checkpoint(name=HOSTILE, step=3, at=NOW)
    async with run_console(state_of(*events(saved=[bad])), size=(100, 40), at="engine") as console:
        await console.press("tab", "b")
        text = console.text()
        assert "\x1b" not in text
        assert "[/b]" in text


# --- plain functions -------------------------------------------------------------------------


def server(**more: Any) -> Server:
    return Server(name="e", url="u", checkpoints=SAVED, **more)


def test_the_proposed_name_of_a_save_contains_the_step() -> None:
    assert save_name(server()) == "hand-000011"
    assert save_name(Server(name="e", url="u", step=4, checkpoints=())) == "hand-000003"
    assert save_name(Server(name="e", url="u", checkpoints=())) == "hand-000000"


def test_pruning_lists_the_checkpoints_it_deletes() -> None:
    assert "Nothing: there are only 3 named" in " ".join(prune_loss(server(), 3))
    assert "1 checkpoint is deleted permanently: step-000005." in " ".join(prune_loss(server(), 2))
    more = " ".join(prune_loss(server(checkpoints_more=9), 3))
    assert "9 checkpoints are deleted permanently: and 9 more" in " ".join(more.split())


def test_restoring_a_newer_checkpoint_says_so() -> None:
    off = server(state="OFFLINE")
    text = " ".join(restore_loss(State(), off, "before-reset", Clock()()))
    assert "29 updates ahead" in text
    assert "saved 25h ago" in text


def test_a_lost_or_booting_server_offers_no_checkpoint_commands() -> None:
    session = Session(clock=Clock())
    session.seen = True
    session.state.servers["e"] = server(state="ROLLING", lost="refused")
    offers = {offer.command for offer in available_commands(session, None, "e")}
    assert {name for name in offers if name.startswith("engine")} == {"engine.stop"}
    session.state.servers["e"] = server(state="BOOTING")
    commands = {command.command for command in available_commands(session, None, "e")}
    assert "engine.save" not in commands
    assert "engine.stop" in commands
