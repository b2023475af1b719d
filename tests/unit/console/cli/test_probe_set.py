"""`progress probe-set`: the held-out rows of a dataset as a probe set."""

import json
from pathlib import Path

import pytest

from console.__main__ import main
from mock.dataset.rows import Row, parse_record, side_of
from proxy.evaluation.probe_set import load_probe_set
from tests.support.commands.cli import Cli


def dataset(folder: Path, rows: int = 200) -> Path:
    file = folder / "rows.jsonl"
    lines = [
        {"id": f"r{n}", "query": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(rows)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_it_has_the_held_out_rows_alone(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = dataset(tmp_path), tmp_path / "probe.jsonl"
    cli("progress", "probe-set", file, "--out", out, "--most", "1000")
    prompts = {one.prompt: one.reference for one in load_probe_set(str(out)).prompts}
    expected = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        row = parse_record(number, json.loads(line))
        assert isinstance(row, Row)
        if side_of(row, 0.1) == "held-out":
            expected[row.query] = row.reference
    assert prompts == expected
    assert 5 < len(prompts) < 40
    assert f"{len(prompts)} prompts written to {out}" in capsys.readouterr().out


def test_it_has_at_most_the_number_asked_for_and_keeps_conversations(tmp_path: Path) -> None:
    file, out = tmp_path / "chats.jsonl", tmp_path / "probe.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    several = {"messages": [*messages, {"role": "assistant", "content": "So."}, messages[1]]}
    rows = [{"messages": messages}, {"messages": messages}, several]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = ["progress", "probe-set", str(file), "--out", str(out), "--held-out", "1", "--most", "5"]
    assert main(args) == 0
    first = load_probe_set(str(out)).prompts[0]
    assert first.prompt == "Why?"
    assert first.before[0]["content"] == "Be brief."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--held-out", "0"], "0.0 is not in the range"),
        (["--most", "0"], "0 is not in the range"),
        (["--held-out", "0.000001"], "no usable row is held out"),
    ],
)
def test_bad_input_is_refused_by_name(
    cli: Cli, tmp_path: Path, more: list[str], words: str
) -> None:
    file, out = dataset(tmp_path), tmp_path / "probe.jsonl"
    assert words in cli.refused("progress", "probe-set", file, "--out", out, *more)
    assert not out.exists()


def test_an_existing_file_stays(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "probe.jsonl"
    out.write_text("mine")
    assert "the file exists" in cli.refused(
        "progress", "probe-set", dataset(tmp_path), "--out", out
    )
    assert out.read_text() == "mine"
