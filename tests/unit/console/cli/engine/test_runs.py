"""`runs`: the engine runs as text and as JSON, with and without a proxy; name, note and pin."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from core.events import Event, RunNamed
from core.journal.file import SIBLINGS
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import load
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.runs import run_events
from tests.support.sample import HOSTILE, stamp
from tests.unit.console.cli.test_effective import proxy_of


def write(home: Home, *events: Event) -> None:
    journal = Journal(home.journal)
    for seq, event in enumerate(events, 1):
        journal.append(stamp(event, seq))
    journal.close()


@pytest.fixture
def stored(tmp_path: Path) -> Home:
    """A home whose journal has two runs and no proxy."""
    home = Home.open(tmp_path / "home")
    first = [*run_events(1, verdict=True)]
    name = RunNamed(first_seq=4, name=f"good {HOSTILE}")
    write(home, *first, *run_events(2, rate=1e-4, weight=0.5, ends=False), name)
    return home


def test_the_runs_of_a_journal_are_listed(cli: Cli, stored: Home) -> None:
    lines = cli.out("runs").splitlines()
    assert "1-4" in lines[2]
    assert "better" in lines[2]
    assert "good [/b]" in lines[2]
    assert "tiny grpo lr 0.0001 4x4" in lines[1]
    assert lines[-1].startswith("No proxy runs")
    assert "\x1b" not in "".join(lines)


def test_json_has_every_figure_of_a_run(cli: Cli, stored: Home) -> None:
    data: dict[str, Any] = cli.json("runs")
    newest, oldest = data["runs"]
    assert [newest["number"], oldest["number"]] == [2, 1]
    assert newest["running"]
    assert not oldest["running"]
    assert (oldest["verdict"], oldest["ending"]) == ("better", "stopped")
    assert (oldest["gain"], oldest["gain_error"]) == (None, None), "it has too few steps"
    assert (oldest["groups"], oldest["rated"], oldest["updates"]) == (6, 1, 3)
    assert oldest.items() <= cli.json("runs", "show", "1").items()


def test_one_run_and_two_are_shown(cli: Cli, stored: Home) -> None:
    shown = cli.out("runs", "show", "1")
    assert not missing(shown, "tiny, grpo, learning rate 0.0005", "better by")
    unended = cli.out("runs", "show", "2")  # without a proxy, nobody knows whether it runs
    assert "no end recorded" in unended
    assert "running" not in unended
    compared = cli.out("runs", "compare", "1", "2")
    assert not missing(compared, "Learning rate  0.0005", "length")
    data = cli.json("runs", "compare", "1", "2")
    assert [one["what"] for one in data["job"]] == ["Learning rate"]
    assert [(one["what"], one["left"], one["right"]) for one in data["rewards"]] == [
        ("length", "0.3", "0.5"),
        ("relevance", "0.7", "0.5"),
    ]


def test_an_unknown_run_and_an_empty_journal(cli: Cli, tmp_path: Path, stored: Home) -> None:
    assert "there is no run 7" in cli.refused("runs", "show", "7")
    shown = cli.refused("runs", "compare", "1", "1")
    assert "run 1 cannot be compared with itself" in shown
    assert "no proxy runs" in cli.failed("runs", "pin", "1")
    empty = Home.open(tmp_path / "empty")
    write(empty)
    assert "No engine has run yet" in cli.out("--home", empty.root, "runs")


def test_reading_is_allowed_with_read_only(cli: Cli, stored: Home) -> None:
    cli("--read-only", "runs", "show", "1")
    shown = cli.refused("--read-only", "runs", "pin", "1")
    assert "refused with --read-only" in shown


async def test_name_note_and_pin_go_to_the_proxy_and_into_the_journal(
    async_cli: AsyncCli, tmp_path: Path
) -> None:
    home = Home.open(tmp_path / "home")
    async with proxy_of(home, load(None)) as made:
        journal, bus = made.context.journal, made.context.bus
        for end in ("", *SIBLINGS):  # the journal of tests has another name
            os.symlink(f"{journal.path}{end}", f"{home.journal}{end}")
        publish_all(bus, run_events(1))
        place = ("--home", str(home.root))
        await async_cli("runs", *place, "name", "1", f" first \n {HOSTILE}")
        await async_cli("runs", "note", *place, "1", "why")
        output = await async_cli.out("runs", "pin", *place, "1")
        assert "run 1 is pinned" in output
        assert "\x1b" not in output
        await async_cli("runs", "pin", *place, "1")
        await async_cli("runs", "name", *place, "1", "x" * 81, code=1)
        assert "there is no run 9" in await async_cli.failed("runs", "name", *place, "9", "x")
        with JournalFile(home.journal) as file:
            (stored,) = file.load_state().engine_runs.runs
        assert stored == bus.state.engine_runs.runs[0]
        assert stored.name.startswith("first [/b]")
        assert "\x1b" not in stored.name
        assert (stored.note, stored.pinned) == ("why", True)
        assert "6 in pinned runs" in await async_cli.out("journal", "stats", *place)
        assert (await async_cli.json("runs", "show", *place, "1"))["pinned"]


def publish_all(bus: Any, events: Iterable[Event]) -> None:
    for event in events:
        bus.publish(event)
