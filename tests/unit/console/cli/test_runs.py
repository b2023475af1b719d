"""`runs`, `engine try` and `progress rewind`."""

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.job.schema import MODEL
from ajet_swarm.job.tree import get, load_job
from console.cli.engine import control
from core.events import Rewound, RunNamed
from core.journal.file import SIBLINGS
from core.journal.read_only import JournalFile
from core.runtime.home import Home, Role
from core.settings import load
from core.state import Probe, State
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.commands.control import FakeControl
from tests.support.engine.model_folder import write_model, write_shards
from tests.support.proxy.trained import Trained, trained
from tests.support.ranked import write_journal
from tests.support.runs import run_events
from tests.support.sample import HOSTILE
from tests.unit.console.cli.test_effective import proxy_of


@pytest.fixture
def stored(tmp_path: Path) -> Home:
    """A home whose journal has two runs and no proxy."""
    home = Home.open(tmp_path / "home")
    first = run_events(1, verdict=True)
    name = RunNamed(first_seq=4, name=f"good {HOSTILE}")
    second = run_events(2, rate=1e-4, weight=0.5, ends=False)
    write_journal(home.journal, [*first, *second, name])
    return home


def test_the_runs_of_a_journal_are_listed(cli: Cli, stored: Home) -> None:
    lines = cli.out("runs").splitlines()
    assert not missing(lines[2], "1-4", "better", "good [/b]")
    assert "tiny grpo lr 0.0001 4x4" in lines[1]
    assert lines[-1].startswith("No proxy runs")
    assert "\x1b" not in "".join(lines)


def test_json_has_every_figure_of_a_run(cli: Cli, stored: Home) -> None:
    data: dict[str, Any] = cli.json("runs")
    newest, oldest = data["runs"]
    assert (newest["number"], newest["running"]) == (2, True)
    assert (oldest["number"], oldest["running"]) == (1, False)
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
    assert [change["what"] for change in data["job"]] == ["Learning rate"]
    assert [(reward["what"], reward["left"], reward["right"]) for reward in data["rewards"]] == [
        ("length", "0.3", "0.5"),
        ("relevance", "0.7", "0.5"),
    ]


def test_an_unknown_run_and_an_empty_journal(cli: Cli, tmp_path: Path, stored: Home) -> None:
    assert "there is no run 7" in cli.refused("runs", "show", "7")
    shown = cli.refused("runs", "compare", "1", "1")
    assert "run 1 cannot be compared with itself" in shown
    assert "no proxy runs" in cli.failed("runs", "pin", "1")
    empty = Home.open(tmp_path / "empty")
    write_journal(empty.journal, [])
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
        for event in run_events(1):
            bus.publish(event)
        place = ("--home", str(home.root))
        await async_cli("runs", *place, "name", "1", f" first \n {HOSTILE}")
        await async_cli("runs", "note", *place, "1", "why")
        output = await async_cli.out("runs", "pin", *place, "1")
        assert "run 1 is pinned" in output
        assert "\x1b" not in output
        await async_cli("runs", "pin", *place, "1")
        await async_cli("runs", "name", *place, "1", "x" * 81, code=1)
        assert "there is no run 9" in await async_cli.failed("runs", "name", *place, "9", "x")
        file = JournalFile(home.journal)
        (stored,) = file.load_state().engine_runs.runs
        assert stored == bus.state.engine_runs.runs[0]
        assert stored.name.startswith("first [/b]")
        assert "\x1b" not in stored.name
        assert (stored.note, stored.pinned) == ("why", True)
        assert "6 in pinned runs" in await async_cli.out("journal", "stats", *place)
        assert (await async_cli.json("runs", "show", *place, "1"))["pinned"]


def test_a_try_that_the_proxy_forgot_ends_with_an_error(
    cli: Cli, proxy: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: proxy)
    monkeypatch.setattr(control, "STOP_SECONDS", 0.1)
    assert "no longer has this try" in cli.failed("engine", "try", "hello", "--timeout", "0.1")
    assert [name for name, _ in proxy.sent] == ["engine.try", "engine.try_stop"]


class Slow(FakeControl):
    """A proxy whose policy has answered when it is asked the sixth time."""

    reads = 0

    async def snapshot(self) -> State:
        self.reads += 1
        asked = self.sent[0][1]["try_id"] if self.sent else ""
        probe = Probe(try_id=asked, prompt="hello", server="s", group_id="", at=time.time() - 3)
        probe.text, probe.over = ("an answer", True) if self.reads > 5 else ("", False)
        return State(tries=[probe])


@pytest.mark.parametrize(
    ("after", "lines"),
    [(0.0, "try: waits for an episode, 3s\n"), (100.0, "")],  # once: the next is far off
)
def test_a_long_wait_prints_progress_lines_on_a_pipe(
    cli: Cli, proxy: FakeControl, monkeypatch: pytest.MonkeyPatch, after: float, lines: str
) -> None:
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: Slow())
    monkeypatch.setattr(control, "PROGRESS_AFTER", after)
    captured = cli.run("engine", "try", "hello")
    assert captured.err == lines
    assert "an answer" in captured.out


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET", 0.1)


@asynccontextmanager
async def proxied(home: Home, better_at: int = 6) -> AsyncIterator[Trained]:
    """A proxy of the home whose server has a verified step."""
    async with trained(home.root) as made:
        await made.look(better_at, 0.9)
        async with made.served(home.token()) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                yield made


def model_of(made: Trained) -> object:
    return get(load_job(str(made.w.swarm.config)), MODEL)


@pytest.mark.slow
async def test_shards_are_refused_with_the_merge_command_and_a_path_is_rewound_to(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        actor = write_shards(made.folder(5))
        shown = await async_cli.failed("progress", "rewind", "--yes")
        merge = f"python -m verl.model_merger merge --backend fsdp --local_dir {actor}"
        assert not missing(shown, "holds shards only", merge)
        assert made.w.swarm.stops == 0

        merged = write_model(tmp_path / "merged weights")
        shown = await async_cli.out("progress", "rewind", "--path", merged, "--yes")
        assert "step 6: better by 0." in shown
        assert (made.w.swarm.stops, model_of(made)) == (1, str(merged))
        (rewound,) = made.w.kinds(Rewound)
        assert (rewound.step, rewound.restored) == (6, str(merged))


@pytest.mark.slow
async def test_without_yes_the_plan_is_shown_and_nothing_changes(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        merged = write_model(tmp_path / "merged")
        shown = await async_cli.refused("progress", "rewind", "--path", merged)
        assert re.search(rf"^step 6 \(\+0\.\d\d against the baseline\): {merged}$", shown, re.M)
        assert not missing(shown, f"/models/base -> {merged}", "The optimizer state", "Add --yes")
        assert (made.w.swarm.stops, model_of(made)) == (0, "/models/base")


@pytest.mark.slow
async def test_a_path_that_cannot_be_used_is_refused_before_the_question(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    async with proxied(home) as made:
        for path, words in (
            ("relative", "relative"),
            ("/data/global_step_9/actor", "which no look verified"),
            (tmp_path / "a\x1b[2Jb", ""),
        ):
            shown = await async_cli.failed("progress", "rewind", "--path", path, "--yes")
            assert words in shown
            assert "\x1b" not in shown
        assert (made.w.swarm.stops, model_of(made)) == (0, "/models/base")
