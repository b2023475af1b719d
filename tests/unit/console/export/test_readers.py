"""Files of an export are read by the mock user and by the library `datasets`."""

from pathlib import Path
from typing import Any

import pytest

from console.export.format import BUILT_IN
from console.export.run import ExportOptions, export
from console.export.split import parse_split
from core.journal.read_only import JournalFile
from mock.dataset import Row, open_dataset
from tests.support.ranked import called, ranked_group, write_journal
from tests.unit.console.export.conftest import Exporter

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


PROMPTS: list[tuple[Any, str | None]] = [
    ("What is 2 + 3?", "5"),
    ("Say hello.", None),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "Because"),
    (
        [
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "1"},
            {"role": "user", "content": "again"},
        ],
        "2",
    ),
    ("line one\nline two  \u2028 and “more”", ""),
    ("What is 2 + 3?", "five"),
]


def read(path: Path) -> list[Row]:
    """The rows of a dataset."""
    with open_dataset(path) as dataset:
        while dataset.records.scan():
            pass
        rows = [dataset.row(place) for place in range(dataset.records.count)]
    assert all(isinstance(row, Row) for row in rows), rows
    return [row for row in rows if isinstance(row, Row)]


def test_questions_and_references_come_back(exported: Exporter) -> None:
    events = [
        event
        for number, (prompt, reference) in enumerate(PROMPTS)
        for event in ranked_group(
            f"g{number}",
            prompt,
            reference=reference,
            row_id=f"r{number}",
            dataset_task_id=f"task {number}",
            metadata={"level": number},
        )
    ]
    _, report = exported("dataset", events)
    (path,) = report.files
    rows = read(path)
    expected = [
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        for prompt, _ in PROMPTS
    ]
    assert [list(row.messages) for row in rows] == expected
    assert [row.reference for row in rows] == [reference for _, reference in PROMPTS]
    assert [row.metadata for row in rows] == [{"level": n} for n in range(len(PROMPTS))]
    assert len({row.row_id for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "name", ["dataset", "sft", "preference", "unpaired", "ranking", "verl", "jsonl"]
)
def test_every_format_is_a_dataset_with_the_same_questions(exported: Exporter, name: str) -> None:
    """Prompts with their context and tools, as folder of the export."""
    if name == "verl":
        pytest.importorskip("pyarrow")
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    prompts = [prompt for prompt, _ in PROMPTS[:4]]
    if name == "verl":
        prompts = [prompts[0], prompts[2]]  # it has no tool calls, and only prompts with reference
    events = [
        event
        for number, prompt in enumerate(prompts)
        for event in ranked_group(f"g{number}", prompt, reference="5", tools=tools)
    ]
    _, report = exported(name, events)
    rows = read(next(iter(report.files)).parent)
    answers = 2 if name == "unpaired" else 1
    expected = [
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        for prompt in prompts
    ]
    assert [row.messages[-1] for row in rows] == [
        messages[-1] for messages in expected for _ in range(answers)
    ]
    assert [len(row.messages) for row in rows] == [
        len(messages) for messages in expected for _ in range(answers)
    ]
    has_tools = name not in ("dataset", "verl")
    assert [list(row.tools) for row in rows] == [tools if has_tools else []] * len(rows)
    if name == "unpaired" or name == "ranking":
        assert {row.reference for row in rows} == {None}
    else:
        assert {row.reference for row in rows} == {"5"}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain groups first, then some with tool calls, votes and references."""
    events = [event for n in range(60) for event in ranked_group(f"g{n}", f"question {n}")]
    vote = {"rating": "best", "order": (1,), "blind": True}
    for number, arguments in enumerate(['{"a": 1}', '{"b": "x"}', '{"c": [1, 2]}']):
        events += ranked_group(
            f"t{number}",
            f"call {number}",
            [called(arguments), "none"],
            reference="5",
            metadata={"level": number},
            edited="better",
            vote=vote,
            human=[0.0, 1.0],
        )
    return write_journal(tmp_path_factory.mktemp("journal") / "journal.db", events)


@pytest.mark.filterwarnings("default")
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_folder_loads_with_its_types(journal: Path, tmp_path: Path, name: str) -> None:
    import datasets  # takes 0.6 s

    out = tmp_path / name
    file = JournalFile(journal)
    report = export(file, ExportOptions(name, out, split=parse_split("0.5/0.5")))
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    rows = {path.stem: count for path, count in report.files.items()}
    assert {side: loaded[side].num_rows for side in loaded} == rows
    assert sum(rows.values()) >= 3


@pytest.mark.filterwarnings("default")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["preference", "unpaired", "sft", "ranking"])
def test_a_late_tool_call_fits_the_types(journal: Path, tmp_path: Path, name: str) -> None:
    """The types come from the card; those of the first chunk lack tool calls."""
    import datasets  # takes 0.6 s

    out = tmp_path / name
    file = JournalFile(journal)
    (count,) = export(file, ExportOptions(name, out)).files.values()
    loaded = datasets.load_dataset(
        str(out), cache_dir=str(tmp_path / "cache"), chunksize=2_000, split="train"
    )
    assert loaded.num_rows == count
    text = str(loaded[-1]) + str(loaded[-2]) + str(loaded[-3])
    assert "'name': 'add'" in text or name == "sft"
    assert loaded[0]["provenance"]["group"] == "g0"
