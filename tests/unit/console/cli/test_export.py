"""`export` and `rating raters` on the command line."""

import contextlib
import json
import sqlite3
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.export import format as formats
from console.export.format import BUILT_IN, ExportFormat
from console.export.run import ExportProgress
from core.plugins import EXPORTERS, Plugins
from core.runtime.home import Home
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.ranked import ranked_group, write_journal
from tests.support.ratings import voted
from tests.support.sample import state_of


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose journal has two groups, one of them rated."""
    made = Home.open(tmp_path / "home")
    vote = {"rating": "best", "order": (1,)}
    events = [
        *ranked_group("g0", "Write to ada@example.com about EMP-123456"),
        *ranked_group("g1", "Hello", vote=vote, human=[0.0, 1.0]),
    ]
    write_journal(made.journal, events)
    return made


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "export")


def test_files_and_counts_are_printed(export: Cli, home: Home, tmp_path: Path) -> None:
    shown = export.out("preference", tmp_path / "out.jsonl", "--where", "rated:yes")
    assert not missing(shown, "out.jsonl: 1 row\n", "left out: 1 outside the filter")
    report = export.json("preference", tmp_path / "all", "--split", "0.5/0.5")
    assert (sum(report["files"].values()), report["redacted"]) == (2, {"e-mail address": 1})


def test_flags_reach_the_export(export: Cli, home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    export("jsonl", out, "--only", "human", "--names", "--no-redact")
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["provenance"]["rater"] == "ada"
    export("jsonl", out, "--no-redact", "--force")
    assert "ada@example.com" in out.read_text()


def test_own_patterns_are_redacted(export: Cli, home: Home, tmp_path: Path) -> None:
    home.config.write_text('export:\n  patterns: ["EMP-[0-9]{6}"]\n')
    out = tmp_path / "out.jsonl"
    assert "1 own pattern" in export.out("preference", out)
    assert "EMP-" not in out.read_text()
    for wrong in ("(", "a*"):
        home.config.write_text(f'export:\n  patterns: ["{wrong}"]\n')
        assert "export.patterns" in export.refused("preference", out, "--force")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["preference"], "name a format and a file"),
        (["dpo", "out.jsonl"], "there is no such format"),
        (
            ["preference", "out.jsonl", "--where", "nothing:1"],
            "--where, character 1: there is no field",
        ),
        (["preference", "out.jsonl", "--split", ""], "not a split"),
        (["preference", ""], "name a format and a file"),
        (["preference", "out.jsonl", "--split", "1/1"], "not a split"),
        (["preference", "out.jsonl", "--journal", "missing.db"], "cannot be read"),
    ],
)
def test_wrong_use_is_explained(
    export: Cli, home: Home, monkeypatch: pytest.MonkeyPatch, args: list[str], text: str
) -> None:
    monkeypatch.chdir(home.root)
    assert text in export.refused(*args)


def test_damage_is_warned_of(export: Cli, home: Home, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(home.journal)) as db, db:
        db.execute("update rows set data='x' where seq=(select max(seq) from rows)")
    out, err = export.run("jsonl", tmp_path / "out.jsonl", "--json")
    assert json.loads(out)["damaged"] == 1
    assert "1 row of the journal cannot be read" in err


def test_a_home_without_a_journal_is_named(export: Cli, tmp_path: Path) -> None:
    Home.open(tmp_path / "home")
    assert "no journal in this home yet" in export.refused("jsonl", tmp_path / "out.jsonl")


def test_an_interrupt_leaves_no_file(
    export: Cli, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: ExportProgress) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExportProgress, "text", property(interrupt))
    file = tmp_path / "out" / "all.jsonl"
    assert "no file was written" in export.err("jsonl", file, code=130)
    assert not (tmp_path / "out").exists()


def test_the_formats_are_listed(export: Cli, home: Home) -> None:
    listed = export.json("--list")["formats"]
    assert [one["name"] for one in listed][: len(BUILT_IN)] == list(BUILT_IN)


class Questions:
    """A format of another package."""

    about = "Questions"
    suffix = ".jsonl"
    features: dict[str, Any] = {}  # noqa: RUF012  as another package writes it

    def rows(self, record: Any, maker: Any) -> Any:
        yield {"question": record.opened.query}


FORMAT = Questions()


WRONG = SimpleNamespace(about="no rows")


COLUMNS = Questions()


COLUMNS.suffix = ".parquet"  # and no columns


def test_a_format_of_another_package(
    export: Cli, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"questions": "FORMAT", "wrong": "WRONG", "class": "Questions", "columns": "COLUMNS"}
    points = [EntryPoint(name, f"{__name__}:{at}", EXPORTERS) for name, at in named.items()]
    points.append(EntryPoint("missing", "no_such_module:FORMAT", EXPORTERS))
    kind: Any = ExportFormat
    plugins = Plugins(EXPORTERS, kind, BUILT_IN, find=lambda _: points)
    monkeypatch.setattr(formats, "PLUGINS", plugins)
    export("questions", tmp_path / "q.jsonl")
    questions = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert [question["question"] for question in questions] == [
        "Write to [redacted: e-mail address] about EMP-123456",
        "Hello",
    ]
    for name in ("wrong", "missing", "class", "columns"):
        export(name, tmp_path / "out.jsonl", code=2)
    shown = export.out("--list")
    assert not missing(shown, "(of another package)", "no_such_module", "must name an instance")
    assert "the file would have no columns" in shown


def test_the_agreement_of_raters_is_shown_against_chance(cli: Cli, proxy: FakeControl) -> None:
    events = [
        event
        for number in range(4)
        for event in voted(number, {"ada": number, "bob": number if number else 3})
    ]
    proxy.state = state_of(*events)
    shown = cli.out("rating", "raters")
    assert not missing(
        shown,
        "Same best answers  75 % (",
        " %), by chance 25 %\n",
        "of two raters over 4 groups, with 95 % intervals",
    )
    shown = cli.json("rating", "raters")["agreement"]
    assert (shown["best"]["share"], shown["best"]["chance"]) == (0.75, 0.25)
    assert shown["best"]["low"] < 0.75 < shown["best"]["high"]
    assert shown["order"]["compared"] == 4
    assert shown["order"]["chance"] == pytest.approx(0.25 + 0.25 / 2)


def test_without_two_votes_on_a_group_there_is_no_agreement(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(*voted(1, {"ada": 1}))
    assert "Agreement: no group has votes of two raters yet" in cli.out("rating", "raters")
    assert cli.json("rating", "raters")["agreement"] == {"best": None, "order": None}
