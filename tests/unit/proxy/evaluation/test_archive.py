"""Files of the looks: written whole, bounded in number, readable or refused."""

import gzip
import os
from pathlib import Path

import pytest

from proxy.evaluation.measurement import FOLDER, MeasuredPrompt, Measurement, SampleArchive
from proxy.evaluation.scoring import ScoredSample


def stored(look_id: str) -> Measurement:
    sample = ScoredSample(text="Pa\u2028ris \U0001f600", reward=0.5, parts={"right": 0.5}, length=7)
    prompt = MeasuredPrompt(id="p1", prompt="Capital?", reference="Paris", samples=(sample,))
    return Measurement(
        look_id=look_id, server="s", step=3, at=1.0, reward="v", probe_set="w", prompts=(prompt,)
    )


def test_a_look_is_read_as_it_was_written(tmp_path: Path) -> None:
    archive = SampleArchive(tmp_path)
    file = archive.write(stored("a"))
    assert archive.read(file) == stored("a")
    assert [one.name for one in (tmp_path / FOLDER).iterdir()] == ["a.json.gz"]


def test_the_oldest_files_are_deleted_but_never_the_baseline(tmp_path: Path) -> None:
    archive = SampleArchive(tmp_path, most=3)
    baseline = archive.write(stored("base"))
    for number in range(6):
        file = archive.write(stored(f"l{number}"), baseline)
        os.utime(tmp_path / file, (number + 10, number + 10))
    os.utime(tmp_path / baseline, (1, 1))
    archive.write(stored("last"), baseline)
    names = {one.name.partition(".")[0] for one in (tmp_path / FOLDER).iterdir()}
    assert names == {"base", "l4", "l5", "last"}


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"{", mtime=0), gzip.compress(b"[]", mtime=0)],
    ids=["empty", "no gzip", "cut JSON", "a list"],
)
def test_a_damaged_file_is_no_baseline(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged").write_bytes(data)
    assert SampleArchive(tmp_path).read("damaged") is None
    assert "cannot be read" in caplog.text
    assert SampleArchive(tmp_path).read("") is None


def test_a_folder_that_cannot_be_written_costs_the_file_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    assert SampleArchive(tmp_path).write(stored("a")) == ""
    assert "are not stored" in caplog.text
