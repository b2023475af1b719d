"""Id of a training run: kept with the weights, replaced when steps would count other weights."""

from pathlib import Path

import pytest

from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.training_run import NAME, TrainingRunFile


def _run(directory: Path) -> str:
    store = CheckpointStore(directory)
    try:
        return store.run.id
    finally:
        store.close()


def test_a_run_is_kept_across_openings(tmp_path: Path) -> None:
    assert _run(tmp_path) == _run(tmp_path)
    assert _run(tmp_path / "other") != _run(tmp_path)


def test_a_reset_begins_another_run(tmp_path: Path) -> None:
    before = _run(tmp_path)
    store = CheckpointStore(tmp_path)
    store.reset()
    assert store.run.id != before
    store.close()
    assert _run(tmp_path) not in ("", before)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"run": 3, "start": ""}', b'{"run": "a b", "start": ""}']
)
def test_an_unreadable_file_begins_another_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert TrainingRunFile(tmp_path).read() is None
    assert len(_run(tmp_path)) == 8


def test_a_failed_save_begins_another_run_at_the_next_opening(tmp_path: Path) -> None:
    before = _run(tmp_path)
    store = CheckpointStore(tmp_path)
    assert store.run.id == before

    def fails() -> None:
        raise OSError(28, "No space left on device")

    store._sync = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="could not be saved"):
        store.write("latest", [b"x"], "step 1")
    assert store.run.id == before  # the weights in memory are still of this run
    assert not (tmp_path / NAME).exists()
    del store._sync
    store.write("latest", [b"x"], "step 2")
    store.close()
    assert _run(tmp_path) == before


def test_a_named_checkpoint_that_cannot_be_saved_does_not_end_the_run(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    before = store.run.id
    (tmp_path / "mine.ckpt").mkdir()
    with pytest.raises(RuntimeError, match="could not be saved"):
        store.write("mine", [b"x"], "step 1")
    store.close()
    assert _run(tmp_path) == before
