"""Folder of one policy's checkpoints: atomic writes, reset, restore, and the lock of the folder.

A file is written beside its target, synced and renamed, so that a kill or a full disk leaves the
previous file intact.
"""

import contextlib
import errno
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from core.whole_file import sync_folder
from engine.interface import LATEST, SaveError, TrainingRun, WeightsError
from engine.storage.checkpoint_files import (
    BASE_NAME,
    BEFORE_RESET,
    BEFORE_RESTORE,
    DAMAGED,
    PREVIOUS,
    OtherBaseError,
    check_name,
    find,
    newest_usable,
    read,
)
from engine.storage.training_run import TrainingRunFile

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)


class SavedState(Protocol):
    """State of a policy, read from a checkpoint."""

    @property
    def step(self) -> int:
        """Number of policy updates in the weights."""


StateT = TypeVar("StateT", bound=SavedState)


class CheckpointStore:
    """The checkpoints of one policy in one directory, which one process at a time can lock.

    Args:
        directory: Created when it does not exist.

    Raises:
        WeightsError: another engine has locked the directory, or it is not writable.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.latest = self.path(LATEST)
        self.previous = self.path(PREVIOUS)
        self._run_file = TrainingRunFile(directory)
        self._run: TrainingRun | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise WeightsError(
                f"The directory of the policy cannot be used ({error.strerror})",
                str(directory),
                "Choose another home or free it.",
            ) from error
        self._acquire_lock()
        for stale in directory.glob("*.tmp"):
            with contextlib.suppress(OSError):
                stale.unlink()

    def path(self, name: str) -> Path:
        """Return the path of a checkpoint."""
        return self.directory / f"{name}.ckpt"

    @property
    def run(self) -> TrainingRun:
        """The training run of the latest weights; a new one if none is stored."""
        if self._run is None:
            self._run = self._run_file.read() or self._run_file.begin()
        return self._run

    def begin_run(self, start: str = "") -> None:
        """Begin a training run at the checkpoint `start`: its steps count other weights.

        Raises:
            OSError: the previous training run cannot be removed.
        """
        self._run = self._run_file.begin(start)

    def write(self, name: str, content: Sequence[bytes | memoryview], action: str) -> None:
        """Write a checkpoint; the replaced latest one becomes the previous one.

        Raises:
            SaveError: nothing was replaced; everything saved before is intact.
        """
        temporary = self.directory / f"{name}.{os.getpid()}.tmp"
        target = self.path(name)
        try:
            with temporary.open("wb") as file:
                file.writelines(content)
                file.flush()
                os.fsync(file.fileno())
            if name == LATEST and self.latest.exists():
                self._link_as(self.latest, self.previous)
            os.replace(temporary, target)
            self._sync()
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if name == LATEST:  # the next opening would count the lost steps again
                with contextlib.suppress(OSError):
                    self._run_file.drop()
            raise SaveError(
                f"{target}: {action} could not be saved ({error.strerror or error}). "
                "Free space or correct the permissions: the next update saves again."
            ) from error
        if name == LATEST and self._run is not None:
            self._run_file.keep(self._run)

    def load_saved(self, unpack: Callable[[Path], StateT], base: str) -> StateT | None:
        """Return the latest intact state; None when nothing is saved.

        A damaged latest checkpoint is renamed, with a warning.

        Args:
            unpack: Reads a checkpoint; raises WeightsError when it cannot be used.
            base: Digest of the base weights.

        Raises:
            WeightsError: neither of the last two states can be used; names the newest intact
                checkpoint if there is one.
        """
        if self.latest.exists():
            try:
                return unpack(self.latest)
            except OtherBaseError:
                raise
            except WeightsError as error:
                aside = self.path(DAMAGED)
                log.warning("%s: set aside as %s", error, aside.name)
                with contextlib.suppress(OSError):
                    os.replace(self.latest, aside)
                    self.begin_run()
                if not self.previous.exists():
                    raise WeightsError(
                        "The only checkpoint is damaged",
                        str(aside),
                        f"{self.advice(base)} Starting again as it is does that too.",
                    ) from error
        if not self.previous.exists():
            return None
        try:
            state = unpack(self.previous)
        except OtherBaseError:
            raise
        except WeightsError as error:
            raise WeightsError(
                f"The previous checkpoint is damaged too ({error.what})",
                str(self.previous),
                self.advice(base),
            ) from error
        self.begin_run(PREVIOUS)  # the last step is trained again, on other samples
        log.warning("continuing from %s, global step %d", self.previous, state.step)
        return state

    def reset(self) -> None:
        """Set the saved states aside as `before-reset`; the next load returns the base.

        Raises:
            WeightsError: they could not be moved.
        """
        with self._os_errors("set aside"):
            self.begin_run()
            self.previous.unlink(missing_ok=True)
            if self.latest.exists():
                self._link_as(self.latest, self.path(BEFORE_RESET))
                self.latest.unlink()
            self._sync()

    def restore(self, name: str, base: str) -> None:
        """Make a checkpoint the latest; set the current latest aside as `before-restore`.

        Args:
            name: A listed name, or `base`.
            base: Digest of the base weights.

        Raises:
            NoCheckpointError: no checkpoint has this name.
            WeightsError: it is damaged (an intact one is suggested) or of another base; nothing
                changed.
        """
        if name == BASE_NAME:
            self.reset()
            return
        source = find(self.directory, name)
        try:
            read(source, base, 0)
        except OtherBaseError:
            raise
        except WeightsError as error:
            raise WeightsError(error.what, error.where, self.advice(base)) from error
        if name == LATEST:
            return
        with self._os_errors("replaced"):
            ready = self.directory / f"restored.{os.getpid()}.tmp"
            _link(source, ready)
            self.begin_run(name)
            if self.latest.exists():
                self._link_as(self.latest, self.path(BEFORE_RESTORE))
            _move(ready, self.latest)
            self.previous.unlink(missing_ok=True)
            self._sync()

    def copy_latest(self, name: str, base: str) -> None:
        """Copy the saved policy to a name.

        Raises:
            NoCheckpointError: nothing is saved.
            WeightsError: it is damaged, or the copy failed.
        """
        check_name(name)
        read(find(self.directory, LATEST), base, 0)
        with self._os_errors("copied"):
            self._link_as(self.latest, self.path(name))
            self._sync()

    def advice(self, base: str) -> str:
        """Return what to do without an intact latest state; names the newest intact checkpoint."""
        intact = newest_usable(self.directory, base)
        if intact is None:
            return "Start with --reset to train from the base weights."
        return (
            f"Go back to {intact.name} (global step {intact.step}, the last good one) with "
            f"--from {intact.name}, or start with --reset to train from the base weights."
        )

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _acquire_lock(self) -> None:
        if sys.platform == "win32":  # no lock: two engines could share a directory
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise WeightsError(
                "Another engine already trains the policy stored here",
                str(self.directory),
                "Stop that engine, or give this one another home.",
            ) from error

    @contextlib.contextmanager
    def _os_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WeightsError(
                f"The saved policy could not be {action} ({error.strerror or error})",
                str(self.directory),
                "Free space or correct the permissions of the directory.",
            ) from error

    def _link_as(self, source: Path, target: Path) -> None:
        """Make `target` the same file as `source`; `target` exists at all times."""
        ready = target.with_name(f"{target.stem}.{os.getpid()}.tmp")
        _link(source, ready)
        _move(ready, target)

    def _sync(self) -> None:
        """Make the renames durable."""
        sync_folder(self.directory)


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
        return
    except OSError:
        log.debug("no hard links in %s: copying", target.parent)
    try:
        with source.open("rb") as old, target.open("wb") as new:
            shutil.copyfileobj(old, new)
            new.flush()
            os.fsync(new.fileno())
    except OSError:
        with contextlib.suppress(OSError):  # do not leave a partial copy on a full disk
            target.unlink(missing_ok=True)
        raise


def _move(source: Path, target: Path) -> None:
    """Rename `source` to `target` and remove `source` even when both are the same file."""
    os.replace(source, target)
    source.unlink(missing_ok=True)
