"""The library `datasets` and pyarrow load each file, also when its rows differ in shape."""

from pathlib import Path

import pytest

from console.export.format import BUILT_IN
from console.export.run import ExportOptions, export
from console.export.split import parse_split
from core.journal.read_only import JournalFile
from tests.support.ranked import called, ranked_group, write_journal

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


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


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_folder_loads_with_its_types(journal: Path, tmp_path: Path, name: str) -> None:
    import datasets  # takes 0.6 s

    out = tmp_path / name
    with JournalFile(journal) as file:
        report = export(file, ExportOptions(name, out, split=parse_split("0.5/0.5")))
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    rows = {path.stem: count for path, count in report.files.items()}
    assert {side: loaded[side].num_rows for side in loaded} == rows
    assert sum(rows.values()) >= 3


@pytest.mark.parametrize("name", ["preference", "unpaired", "sft", "ranking"])
def test_a_late_tool_call_fits_the_types(journal: Path, tmp_path: Path, name: str) -> None:
    """The types come from the card; those of the first chunk lack tool calls."""
    import datasets  # takes 0.6 s

    out = tmp_path / name
    with JournalFile(journal) as file:
        (count,) = export(file, ExportOptions(name, out)).files.values()
    loaded = datasets.load_dataset(
        str(out), cache_dir=str(tmp_path / "cache"), chunksize=2_000, split="train"
    )
    assert loaded.num_rows == count
    text = str(loaded[-1]) + str(loaded[-2]) + str(loaded[-3])
    assert "'name': 'add'" in text or name == "sft"
    assert loaded[0]["provenance"]["group"] == "g0"


@pytest.mark.parametrize("name", BUILT_IN)
def test_pyarrow_reads_a_file(journal: Path, tmp_path: Path, name: str) -> None:
    import pyarrow.json
    import pyarrow.parquet

    suffix = ".parquet" if name == "verl" else ".jsonl"
    out = tmp_path / f"out{suffix}"
    with JournalFile(journal) as file:
        (count,) = export(file, ExportOptions(name, out)).files.values()
    read = pyarrow.parquet.read_table if name == "verl" else pyarrow.json.read_json
    assert read(str(out)).num_rows == count
