"""Checkpoints as files: named, listed, pruned, gone back to; kills and full disks lose nothing."""

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.interface import CheckpointError, NoCheckpointError, SaveError, WeightsError
from engine.policy import weights
from engine.policy.weights import WeightStore
from engine.storage import checkpoint_files as checkpoints
from engine.storage.checkpoint_files import OtherBaseError, file_parts, list_checkpoints, prune
from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.new_folder import new_folder, remove_folder, remove_incomplete
from engine.training.state import State
from tests.support.engine.full_disk import full_disk

DIGEST = "b" * 64
SIZE = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    made = CheckpointStore(tmp_path)
    yield made
    made.close()


def _save(store: CheckpointStore, name: str, step: int, base: str = DIGEST) -> None:
    header = {"base": base, "step": step, "t": step, "size": SIZE}
    array = memoryview(step.to_bytes(4, "little") * SIZE)
    store.write(name, file_parts(header, [array] * 3), f"global step {step}")


def _step(store: CheckpointStore, name: str = "latest") -> int:
    header, arrays = checkpoints.read(store.path(name), DIGEST)
    assert bytes(arrays[:4]) == int(header["step"]).to_bytes(4, "little")
    return int(header["step"])


def _names(directory: Path) -> list[str]:
    return [facts.name for facts in list_checkpoints(directory)]


def test_checkpoints_are_listed_newest_first_with_their_description(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        _save(store, f"step-{step:06d}", step)
    _save(store, "latest", 4)
    result = list_checkpoints(store.directory)
    assert [facts.name for facts in result] == [
        "latest", "step-000003", "step-000002", "step-000001",
    ]  # fmt: skip
    assert [facts.step for facts in result] == [4, 3, 2, 1]
    assert {facts.base for facts in result} == {DIGEST}
    assert [facts.internal for facts in result] == [True, False, False, False]
    assert result[0].bytes == store.latest.stat().st_size
    assert result[0].at == pytest.approx(store.latest.stat().st_mtime, abs=5)


def test_an_empty_or_missing_directory_has_none(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path) == list_checkpoints(tmp_path / "missing") == []


def test_saving_under_a_name_again_replaces_it_and_touches_nothing_else(
    store: CheckpointStore,
) -> None:
    _save(store, "latest", 1)
    _save(store, "mine", 1)
    _save(store, "mine", 2)
    assert (_step(store, "mine"), _step(store)) == (2, 1)
    assert not store.previous.exists()


@pytest.mark.parametrize(
    "name", ["", "latest", "previous", "base", "damaged", "../x", "a/b", ".x", "a\0", "x" * 65, "é"]
)
def test_bad_names_are_refused(store: CheckpointStore, name: str) -> None:
    with pytest.raises(CheckpointError, match="not a valid checkpoint name"):
        checkpoints.check_name(name)
    if name not in ("latest", "previous", "base", "damaged"):
        with pytest.raises(NoCheckpointError, match="There are: none"):
            store.restore(name, DIGEST)


def test_going_back_sets_the_latest_aside(store: CheckpointStore) -> None:
    for step in (1, 2):
        _save(store, "latest", step)
        _save(store, f"s{step}", step)
    _save(store, "latest", 3)
    store.restore("s1", DIGEST)
    assert (_step(store), _step(store, "before-restore")) == (1, 3)
    assert not store.previous.exists(), "a damaged latest must not lead to another line"
    _save(store, "latest", 4)
    assert (_step(store), _step(store, "previous")) == (4, 1)
    assert _step(store, "s1") == 1
    assert not list(store.directory.glob("*.tmp"))


def test_restoring_back_and_forth_loses_nothing(store: CheckpointStore) -> None:
    _save(store, "latest", 7)
    _save(store, "s1", 1)
    store.restore("s1", DIGEST)
    store.restore("before-restore", DIGEST)
    assert (_step(store), _step(store, "before-restore")) == (7, 1)
    store.restore("before-restore", DIGEST)
    store.restore("latest", DIGEST)
    assert _step(store) == 1


def test_base_is_a_name_too_and_reset_can_be_undone(store: CheckpointStore) -> None:
    _save(store, "latest", 5)
    store.restore("base", DIGEST)
    assert not store.latest.exists()
    store.restore("before-reset", DIGEST)
    assert _step(store) == 5
    store.reset()  # latest and before-reset are one file now
    assert not store.latest.exists()
    assert _step(store, "before-reset") == 5


def test_a_copy_of_the_latest(store: CheckpointStore) -> None:
    with pytest.raises(NoCheckpointError):
        store.copy_latest("mine", DIGEST)
    _save(store, "latest", 2)
    store.copy_latest("mine", DIGEST)
    _save(store, "latest", 3)
    assert _step(store, "mine") == 2


def test_prune_keeps_the_newest_and_what_the_engine_keeps(store: CheckpointStore) -> None:
    for step in range(1, 6):
        _save(store, "latest", step)
        _save(store, f"s{step}", step)
    store.restore("s5", DIGEST)
    assert prune(store.directory, 2) == ["s3", "s2", "s1"]
    assert set(_names(store.directory)) == {"latest", "before-restore", "s5", "s4"}
    assert prune(store.directory, 0) == ["s5", "s4"]
    assert _step(store) == 5
    with pytest.raises(CheckpointError, match="keep -1"):
        prune(store.directory, -1)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "magic", "header"])
def test_a_damaged_checkpoint_is_named_and_a_good_one_offered(
    store: CheckpointStore, damage: str
) -> None:
    _save(store, "latest", 9)
    for step in (3, 4):
        _save(store, f"s{step}", step)
    path = store.path("s4")
    data = bytearray(path.read_bytes())
    if damage in ("flip", "magic", "header"):
        data[{"flip": -1, "magic": 0, "header": 46}[damage]] ^= 1
    else:
        del data[len(data) // 2 if damage == "cut" else 0 :]
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"s4\.ckpt: .*damaged.*s3.*global step 3.*--from s3"):
        store.restore("s4", DIGEST)
    assert _step(store) == 9
    if damage != "flip":
        facts = next(facts for facts in list_checkpoints(store.directory) if facts.name == "s4")
        assert (facts.damaged, facts.step) == (True, -1)


def test_a_checkpoint_of_another_base_is_an_error(store: CheckpointStore) -> None:
    _save(store, "old", 1, base="c" * 64)
    with pytest.raises(OtherBaseError, match="other base weights"):
        store.restore("old", DIGEST)
    assert checkpoints.newest_usable(store.directory, DIGEST) is None


def test_nonsense_in_the_directory_is_listed_as_damaged(store: CheckpointStore) -> None:
    for name, text in {"a": b"", "b": b"x" * 100, "c": b"AJETPOL1" + bytes(40) + b"[]"}.items():
        store.path(name).write_bytes(text)
    assert {(facts.name, facts.damaged) for facts in list_checkpoints(store.directory)} == {
        ("a", True), ("b", True), ("c", True),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["latest", "step-000002"])
def test_a_disk_that_is_full_twice_in_the_middle_of_a_file_loses_nothing(
    tmp_path: Path, name: str
) -> None:
    """A real limit on the size of files: half of the checkpoint is written, then the error."""
    base = weights.shipped()
    store, state = WeightStore(tmp_path), State.fresh(base)
    state.step = 1
    store.save(state, base)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, limits[1]))
    try:
        for step in (2, 3):
            state.step = step
            with pytest.raises(SaveError, match=rf"{name}\.ckpt: global step {step} could not"):
                store.save(state, base, name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _names(tmp_path) == ["latest"], "half a file must not fill the disk further"
    assert not list(tmp_path.glob("*.tmp"))
    assert store.load(base).step == 1
    store.save(state, base)
    assert store.load(base).step == 3
    store.close()


def test_a_full_disk_while_going_back_changes_nothing(store: CheckpointStore) -> None:
    _save(store, "latest", 2)
    _save(store, "s1", 1)
    for work in (lambda: store.restore("s1", DIGEST), store.reset):
        with full_disk("link", "fsync"), pytest.raises(WeightsError, match="No space left"):
            work()
    assert _step(store) == 2
    assert not list(store.directory.glob("*.tmp"))
    store.restore("s1", DIGEST)
    assert _step(store) == 1


_SAVER = """
import sys
from pathlib import Path
from engine.storage import checkpoint_files
from engine.storage.checkpoint_store import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
step = int(sys.argv[2])
arrays = [memoryview(bytes(2_000_000))] * 3
while True:
    step += 1
    header = {"base": "b" * 64, "step": step, "t": step, "size": 500_000}
    for name in ("latest", "named"):
        store.write(name, checkpoint_files.file_parts(header, arrays), "it")
        print(name, step, flush=True)
    if step % 3 == 0:
        store.restore("named", "b" * 64)
        print("latest", step, flush=True)
"""


@pytest.mark.process
def test_kills_during_a_save_never_lose_more_than_that_save(tmp_path: Path) -> None:
    done = {"latest": 0, "named": 0}
    for kill in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(tmp_path), str(max(done.values()))],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        for _ in range(5 + kill):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().decode()
        child.stdout.close()
        child.wait()
        store = CheckpointStore(tmp_path)
        for name in done:
            header, _ = checkpoints.read(store.path(name), DIGEST)
            result = [line.split() for line in rest.splitlines() if line.count(" ") == 1]
            acknowledged = [int(step) for which, step in result if which == name]
            assert header["step"] >= max([done[name], *acknowledged])
            done[name] = header["step"]
        assert not list(tmp_path.glob("*.tmp"))
        store.close()
    assert done["latest"] > 12


def write(target: Path, text: str) -> None:
    with new_folder(target) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text(text)
        assert folder.parent == target.parent


def test_it_appears_at_the_end_and_replaces_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "parent" / "step"
    for text in ("one", "two"):
        write(target, text)
        assert (target / "sub" / "file").read_text() == text
        assert [path.name for path in target.parent.iterdir()] == ["step"]


def test_an_error_leaves_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "step"
    write(target, "one")
    with pytest.raises(UnicodeEncodeError):
        write(target, "\ud800")
    assert (target / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "step"
    write(target, "one")
    with full_disk("fsync"), pytest.raises(OSError, match="No space"):
        write(target, "two")
    assert (target / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_in_its_place_stays(tmp_path: Path) -> None:
    target = tmp_path / "step"
    target.write_text("mine")
    with pytest.raises(NotADirectoryError, match="is no folder"):
        write(target, "one")
    assert target.read_text() == "mine"
    with pytest.raises(NotADirectoryError):
        remove_folder(target)


def test_what_a_kill_left_is_deleted(tmp_path: Path) -> None:
    write(tmp_path / "step", "one")
    for name in (".step.1.tmp", ".other-old.2.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("half")
    remove_incomplete(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    remove_folder(tmp_path / "step")
    assert not list(tmp_path.iterdir())
    remove_incomplete(tmp_path / "missing")
