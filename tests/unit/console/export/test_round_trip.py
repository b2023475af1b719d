"""Rows of an export are read by the mock user's reader as the same questions and references."""

from pathlib import Path
from typing import Any

import pytest

from mock.dataset import Row, open_dataset
from tests.support.ranked import ranked_group
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


def test_a_second_export_of_the_rows_is_the_same(exported: Exporter) -> None:
    """Export, ask the rows again, export: the questions and references stay."""
    events = [
        event
        for number in range(20)
        for event in ranked_group(f"g{number}", f"question {number}", reference=str(number))
    ]
    _, report = exported("dataset", events)
    (path,) = report.files
    rows = read(path)
    again = [
        event
        for number, row in enumerate(rows)
        for event in ranked_group(
            f"h{number}", list(row.messages), reference=row.reference, dataset_task_id=row.task_id
        )
    ]
    _, second = exported("dataset", again, out="second")
    (path,) = second.files
    assert [(row.messages, row.reference, row.task_id) for row in read(path)] == [
        (row.messages, row.reference, row.task_id) for row in rows
    ]


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
