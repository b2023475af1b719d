"""Small files are whole, or as before; nothing else is left in their folder."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from core.events import ProbePrompt
from core.runtime.access import AccessTokens
from core.runtime.home import Home, Role
from core.settings import edit
from core.whole_file import replace_file
from proxy.control.job_store import JobStore
from proxy.evaluation.measurement import Measurement, SampleArchive
from proxy.evaluation.probe_set import write_prompts


@pytest.fixture
def umask() -> Iterator[Callable[[int], object]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"1")
    replace_file(path, b"22")
    assert path.read_bytes() == b"22"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.symlink_to(tmp_path / "other")
    replace_file(path, b"1", 0o600)
    assert not path.is_symlink()
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_mode_is_exact_and_without_one_the_process_chooses(
    tmp_path: Path, umask: Callable[[int], object], mask: int
) -> None:
    umask(mask)
    for mode in (0o600, 0o640, 0o664):
        replace_file(tmp_path / "a", b"1", mode)
        assert permissions(tmp_path / "a") == mode
    replace_file(tmp_path / "a", b"1")
    assert permissions(tmp_path / "a") == 0o666 & ~mask


def test_others_never_read_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: Callable[[int], object]
) -> None:
    umask(0)
    seen: list[tuple[int, int]] = []
    real_open, real_chmod = os.open, os.fchmod

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real_open(path, flags, mode)
        if flags & os.O_CREAT:
            seen.append((stat.S_IMODE(os.fstat(descriptor).st_mode), 0))
        return descriptor

    def changed(descriptor: int, mode: int) -> None:
        real_chmod(descriptor, mode)
        seen.append((mode, os.fstat(descriptor).st_size))

    monkeypatch.setattr("core.whole_file.os.open", opened)
    monkeypatch.setattr("core.whole_file.os.fchmod", changed)
    replace_file(tmp_path / "a", b"secret", 0o600)
    assert seen == [(0o600, 0), (0o600, 0)]


def test_the_file_is_synced_before_its_name_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    synced: list[tuple[bool, bool]] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))
        real(descriptor)

    monkeypatch.setattr("core.whole_file.os.fsync", noted)
    replace_file(path, b"1")
    assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_file_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"1")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(f"core.whole_file.os.{call}", fail)
    with pytest.raises(type(error)):
        replace_file(path, b"22")
    assert path.read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize(("number", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    real = os.fsync

    def refused(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr("core.whole_file.os.fsync", refused)
    if raised:
        with pytest.raises(OSError, match="Input/output"):
            replace_file(tmp_path / "a", b"1")
    else:
        replace_file(tmp_path / "a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"


def _settings(home: Home) -> None:
    edit.write(home.config, "a: 1\n", "the settings")


def _tokens(home: Home) -> None:
    AccessTokens(home).add("anna", "rater")


def _run_file(home: Home) -> None:
    Role(home, "proxy").publish(url="http://127.0.0.1:1")


def _job(home: Home) -> None:
    JobStore(home.root).save("s", "ajet: {}\n")


def _probe_set(home: Home) -> None:
    write_prompts(home.root / "probe_set.jsonl", [ProbePrompt(id="a", prompt="Why?")])


def _look(home: Home) -> None:
    look = Measurement(
        look_id="l", server="s", step=1, at=1.0, reward="r", probe_set="p", prompts=()
    )
    if not SampleArchive(home.root).write(look):
        raise OSError("it was not written")  # the archive logs the error


@pytest.mark.parametrize("write", [_settings, _tokens, _run_file, _job, _probe_set, _look])
def test_each_private_file_is_whole_private_and_durable(
    home: Home, monkeypatch: pytest.MonkeyPatch, write: Callable[[Home], None]
) -> None:
    def files() -> dict[Path, bytes]:
        found = [one for one in home.root.rglob("*") if one.is_file() and one.suffix != ".lock"]
        return {one: one.read_bytes() for one in found}

    def full(descriptor: int) -> None:
        assert permissions(Path(f"/dev/fd/{descriptor}")) == 0o600
        raise OSError(28, "No space left on device")

    before = files()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises((OSError, AjetError)):
            write(home)
    assert files() == before
    write(home)
    (new,) = set(files()) - set(before)
    assert permissions(new) == 0o600
