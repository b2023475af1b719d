"""One export: which groups, which files, byte for byte the same, nothing half written."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from console.export import run as module
from console.export.formats.preference import Preference
from console.export.formats.sft import Sft
from console.export.run import ExportCancelled, ExportOptions, ExportProgress, export
from console.export.split import Split, parse_split
from console.session.filters import parse
from core.events import ProbePrompt, ProbeSetLoaded
from core.journal import reader
from core.journal.read_only import JournalFile
from tests.support.checks import missing
from tests.support.ranked import called, ranked_group, write_journal
from tests.unit.console.export.conftest import Exporter


def files_in(folder: Path) -> dict[str, bytes]:
    """Name and content of the files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_what_is_not_exported_is_counted_by_cause(exported: Exporter) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "text": "[image]"}]}]
    probe = ProbePrompt(id="p", prompt="What is 7 + 8?")
    events = [
        ProbeSetLoaded(server="embedded", prompts=(probe,)),
        *ranked_group("g0", "Q"),
        *ranked_group("g1", "Q", phase="ABORTED"),
        *ranked_group("g2", "Q", phase="FAILED"),
        *ranked_group("g3", "Q", episode_type="eval"),
        *ranked_group("g4", "Q", helper="title"),
        *ranked_group("g5", "Q", truncated=True),
        *ranked_group("g6", image),
        *ranked_group("g7", "what is  7 + 8"),
        *ranked_group("g8", "Q", answers=[], rewards=[]),
        *ranked_group("g9", "Q")[:-1],
    ]
    rows, report = exported("jsonl", events)
    assert [row["provenance"]["group"] for row in rows] == ["g0"]
    assert report.left_out == {
        "aborted or failed": 2,
        "evaluation, not for training": 1,
        "helper call of the application": 1,
        "held-out prompt of a probe set": 1,
        "images, which the journal does not keep": 1,
        "no answer": 1,
        "not closed, or not readable": 1,
        "prompt that the server cut": 1,
    }
    card = report.card.read_text()
    assert all(cause in card for cause in report.left_out)


def test_a_filter_chooses_groups(exported: Exporter) -> None:
    events = [*ranked_group("g0", "red"), *ranked_group("g1", "blue")]
    rows, report = exported("jsonl", events, where=parse("text~blue"))
    assert [row["provenance"]["group"] for row in rows] == ["g1"]
    assert report.left_out == {"outside the filter": 1}


def test_equal_prompts_are_on_one_side_and_stay_there(exported: Exporter) -> None:
    events = [
        event
        for number in range(120)
        for event in ranked_group(f"g{number}", f"question  {number % 40}")
    ]
    split = parse_split("0.7/0.3")
    _, report = exported("preference", events, split=split)
    folder = report.card.parent
    sides = {
        name: set((folder / f"{name}.jsonl").read_text().split('"content":"question  ')[1:])
        for name in ("train", "test")
    }
    numbers = {name: {text.split('"')[0] for text in texts} for name, texts in sides.items()}
    assert numbers["train"] | numbers["test"] == {str(number) for number in range(40)}
    assert not numbers["train"] & numbers["test"]
    assert 4 <= len(numbers["test"]) <= 20
    half = [event for event in events if int(getattr(event, "group_id", "g0")[1:]) < 40]
    exported("preference", half, split=split)
    for name, some in numbers.items():
        text = (folder / f"{name}.jsonl").read_text()
        assert all(f'"question  {number}"' in text for number in some)


@pytest.mark.parametrize("text", ["0.9", "0.9/0.2", "1/0", "a/b", "0.5/0.2/0.2/0.1", "-0.1/1.1"])
def test_a_wrong_split_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="sum 1"):
        parse_split(text)


def test_a_split_is_as_large_as_asked_for() -> None:
    split = Split((0.8, 0.1, 0.1))
    sides = [split.side([{"role": "user", "content": f"q{n}"}]) for n in range(3_000)]
    assert abs(sides.count("train") / 3_000 - 0.8) < 0.03
    assert {"train", "validation", "test"} == set(sides)


@pytest.mark.parametrize("name", ["preference", "unpaired", "sft", "ranking", "jsonl", "verl"])
def test_the_same_export_has_the_same_bytes(exported: Exporter, name: str) -> None:
    vote = {"rating": "best", "order": (1,)}
    events = [
        *ranked_group("g0", "Write to bob@example.com", reference="5"),
        *ranked_group("g1", vote=vote, human=[0.0, 1.0], edited="five", reference="5"),
    ]
    first = exported(name, events, out="one")[1].card.parent
    second = exported(name, events, out="two")[1].card.parent
    assert files_in(first) == files_in(second)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "journal.db", ranked_group("g"))
    out = tmp_path / "pairs.jsonl"
    out.write_text("mine")
    journal = JournalFile(path)
    with pytest.raises(UsageError, match="--force"):
        export(journal, ExportOptions("preference", out))
    assert out.read_text() == "mine"
    export(journal, ExportOptions("preference", out, force=True))
    assert "chosen" in out.read_text()
    assert (tmp_path / "pairs.md").exists()


def test_a_forced_export_deletes_the_files_of_the_replaced_one(exported: Exporter) -> None:
    events = [event for number in range(20) for event in ranked_group(f"g{number}", f"q{number}")]
    _, report = exported("preference", events, split=parse_split("0.5/0.5"))
    folder = report.card.parent
    (folder / "validation.jsonl").write_text("mine")
    assert (folder / "test.jsonl").read_text()
    rows, _ = exported("preference", events)
    assert len(rows) == 20
    assert sorted(files_in(folder)) == ["README.md", "train.jsonl", "validation.jsonl"]
    exported("preference", events, out="pairs.jsonl", split=parse_split("0.5/0.5"))
    _, report = exported("preference", events, out="pairs.jsonl")
    assert [path.name for path in folder.parent.glob("pairs*.jsonl")] == ["pairs.jsonl"]


def test_a_cancelled_export_leaves_nothing(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "journal.db", ranked_group("g"))
    journal = JournalFile(path)
    with pytest.raises(ExportCancelled):
        export(journal, ExportOptions("preference", tmp_path / "a" / "b"), cancelled=lambda: True)
    assert [file.name for file in tmp_path.iterdir()] == ["journal.db"]


class _Failing:
    """A format that fails."""

    about = "Nothing"
    suffix = ".jsonl"
    features: ClassVar[dict[str, Any]] = {}

    def __init__(self, row: Any = None) -> None:
        self.row = row

    def rows(self, record: Any, maker: Any) -> Iterator[dict[str, Any]]:
        """Yield the row, or fail."""
        if self.row is None:
            raise KeyError("reward")
        yield self.row


@pytest.mark.parametrize("row", [None, "text", {"at": object()}])
def test_a_format_that_fails_is_named_with_the_group(
    exported: Exporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: Any
) -> None:
    monkeypatch.setattr(module, "find_format", lambda name: _Failing(row))
    with pytest.raises(AjetError, match="the format `mine` failed: ") as error:
        exported("mine", ranked_group("g7"))
    assert error.value.where == "group g7"
    assert not (tmp_path / "out").exists()


def test_damaged_rows_are_counted_and_said(tmp_path: Path) -> None:
    events = [event for number in range(4) for event in ranked_group(f"g{number}", f"q{number}")]
    path = write_journal(tmp_path / "journal.db", events)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("update rows set data=? where seq=(select max(seq) from rows)", (b"x" * 40,))
    journal = JournalFile(path)
    report = export(journal, ExportOptions("preference", tmp_path / "pairs.jsonl"))
    assert report.damaged == 1
    assert "1 row of the journal cannot be read" in report.card.read_text()


def test_a_group_whose_texts_are_lost_is_left_out_and_counted(tmp_path: Path) -> None:
    long = "a question of more than a hundred bytes, which the journal stores apart " * 3
    path = write_journal(
        tmp_path / "journal.db", [*ranked_group("g0", long), *ranked_group("g1", "q")]
    )
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("delete from messages where id=1")
    journal = JournalFile(path)
    report = export(journal, ExportOptions("preference", tmp_path / "pairs.jsonl"))
    assert (report.groups, report.left_out) == (1, {"texts that are missing in the journal": 1})


def test_the_survey_reports_progress_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(reader, "ROWS", 1)
    events = [event for number in range(3) for event in ranked_group(f"g{number}")]
    path = write_journal(tmp_path / "journal.db", events)
    reports: list[ExportProgress] = []
    journal = JournalFile(path)
    with pytest.raises(ExportCancelled):
        export(
            journal,
            ExportOptions("preference", tmp_path / "pairs.jsonl"),
            reports.append,
            lambda: len(reports) > 5,
        )
    assert all(report.total == 0 for report in reports)
    assert 0.0 < reports[-1].surveyed < 1.0
    assert reports[-1].text.startswith("Reading the journal (")


def test_equal_texts_are_their_own_cause(exported: Exporter) -> None:
    _, report = exported("preference", ranked_group("g", answers=("5", "5")))
    assert report.left_out == {"no pair: the worse answers have the text of the best one": 1}


def test_the_card_says_what_a_filter_compares_and_has_plurals(exported: Exporter) -> None:
    events = ranked_group("g", "Write to bob@example.com or ada@example.com")
    _, report = exported("preference", events, where=parse("text~write"))
    card = report.card.read_text()
    assert not missing(card, "first 2,000 characters", "2 e-mail addresses")


def test_the_card_counts_agreement(exported: Exporter) -> None:
    agree = {"rating": "best", "order": (0,), "blind": True}
    events = [
        *ranked_group("g0", vote=agree, human=[1.0, 0.0]),
        *ranked_group("g1", vote={"rating": "best", "order": (1,)}, human=[0.0, 1.0]),
    ]
    _, report = exported("preference", events)
    card = report.card.read_text()
    assert not missing(
        card,
        "Same best answer: 1 of 2 (50%",
        "sight of the rewards: 1 of 1",
        "| rated by a person | 2 |",
    )


def test_the_filter_in_the_card_has_no_secret(exported: Exporter) -> None:
    where = parse("text~ada@example.com")
    _, report = exported("jsonl", ranked_group("g", "write to ada@example.com"), where=where)
    assert report.groups == 1
    assert "ada@example.com" not in report.card.read_text()


@pytest.mark.parametrize("name", ["preference", "unpaired", "sft", "ranking"])
def test_a_password_of_a_tool_call_is_redacted(exported: Exporter, name: str) -> None:
    group = ranked_group("g", answers=[called('{"password": "Correct7Horse!"}'), "no"])
    rows, report = exported(name, group)
    assert rows
    assert "Correct7Horse!" not in str(rows)
    assert report.redacted == {"password": 1}


def test_a_value_that_is_nested_too_deeply_costs_its_group_alone(exported: Exporter) -> None:
    deep = '{"a": ' * 500 + "1" + "}" * 500
    events = [*ranked_group("g0", answers=[called(deep), "no"]), *ranked_group("g1")]
    rows, report = exported("preference", events)
    assert [row["provenance"]["group"] for row in rows] == ["g1"]
    assert report.left_out == {"values that are nested too deeply": 1}


def test_a_named_rater_is_named_everywhere(exported: Exporter) -> None:
    vote = {"rating": "best", "order": (0,), "rater": "ada@example.com"}
    (row,), _ = exported("jsonl", ranked_group("g", vote=vote, human=[1.0, 0.0]), names=True)
    assert row["vote"]["rater"] == row["provenance"]["rater"] == "ada@example.com"


def test_the_card_declares_provenance_for_each_format(
    exported: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = {"prompt": Sft.features["messages"], "chosen": Sft.features["messages"]}
    monkeypatch.setattr(Preference, "features", features)
    _, report = exported("preference", ranked_group("g"))
    assert "  - name: provenance\n    struct:" in report.card.read_text()


@pytest.mark.parametrize(
    ("name", "out", "words"),
    [
        ("preference", "pairs.csv", "jsonl"),
        ("preferences", "out", "preference"),
        ("preference", "file/out.jsonl", "cannot be written"),
        ("preference", "file", "this is a file"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, out: str, words: str) -> None:
    path = write_journal(tmp_path / "journal.db", ranked_group("g"))
    (tmp_path / "file").write_text("mine")
    journal = JournalFile(path)
    with pytest.raises(AjetError, match=words):
        export(journal, ExportOptions(name, tmp_path / out, force=True))
    assert (tmp_path / "file").read_text() == "mine"
