"""The folder that holds everything the program writes, and who runs in it.

Layout of `AJET_CONSOLE_HOME`: `config.yaml`, `journal.db`, `token`, `client_uuid` (by which swarm
servers know the proxy), `engine/` (checkpoints), `logs/`, `run/<role>.json` (pid, port, url of a
running process) beside `run/<role>.lock`.
"""

import contextlib
import errno
import logging
import os
import secrets
import stat
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ajet_swarm.common.errors import AjetError

if sys.platform != "win32":
    import fcntl

_OURS = frozenset(
    {"token", "client_uuid", "journal.db", "config.yaml", "rewards.yaml", "hooks", "datasets"}
)
"""Names that stand in a home, made by us or put there for us; any of them, or all of"""
_FOLDERS = frozenset({"run", "logs", "engine"})

log = logging.getLogger(__name__)

ENVIRONMENT = "AJET_CONSOLE_HOME"


class HomeError(AjetError):
    """The home cannot be used."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a running process tells about itself."""

    role: str
    pid: int
    started_at: float
    """Unix seconds."""
    host: str = ""
    port: int = 0
    url: str = ""
    """Where it listens, without a trailing slash; empty when it does not."""
    swarm: str = ""
    """Proxy only: the swarm servers it was started with, for people."""
    extra: dict[str, str] = msgspec.field(default_factory=dict)


class AlreadyRunning(AjetError):
    """Another process of this home has the role."""

    def __init__(self, role: str, info: RunInfo | None) -> None:
        self.info = info
        by = f" (pid {info.pid}{', ' + info.url if info.url else ''})" if info else ""
        super().__init__(
            f"{role} already runs in this home{by}",
            todo="Use it, stop it, or give another home with AJET_CONSOLE_HOME",
        )


def default_root() -> Path:
    """The home named by the environment, else the platform's own place for user data."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("ajet-console")


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one root; `open` makes and checks them."""

    root: Path

    @classmethod
    def open(cls, root: Path | None = None) -> Self:
        """Make the folders and see that they can be written.

        Raises:
            HomeError: the place cannot be made or written, or holds other things and is open to
                others; names it and the way out.
        """
        home = cls.at(root)
        probe = home.run / f".probe-{os.getpid()}"
        try:
            home.root.mkdir(0o700, parents=True, exist_ok=True)
            _close_to_others(home.root)
            for folder in (home.run, home.logs, home.engine):
                folder.mkdir(exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise HomeError(
                f"the home cannot be written: {error.strerror or error}",
                where=str(home.root),
                todo=f"Make it writable or name another with {ENVIRONMENT}",
            ) from error
        return home

    @classmethod
    def at(cls, root: Path | None = None) -> Self:
        """To look at: nothing is made or changed."""
        return cls((root or default_root()).absolute())

    @property
    def exists(self) -> bool:
        """Whether it was ever opened."""
        return self.run.is_dir()

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def engine(self) -> Path:
        return self.root / "engine"

    @property
    def journal(self) -> Path:
        return self.root / "journal.db"

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def token_file(self) -> Path:
        return self.root / "token"

    def token(self) -> str:
        """The control token of this home, made once, mode 0600; one open to others is closed.

        Raises:
            HomeError: there is no home yet, or the file is empty, cannot be read, or is a link to
                nothing.
        """
        if not self.exists:
            raise missing_home(self)
        try:
            fd = os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _read_token(self.token_file)
        text = secrets.token_urlsafe(32)
        with os.fdopen(fd, "w") as file:
            file.write(text + "\n")
        return text

    def client_uuid(self, known: str | None = None) -> str:
        """By which name swarm servers know the proxy of this home, made once.

        It lies beside the token and not in the journal alone: without it a proxy whose journal is
        gone cannot find the episodes that it holds.

        Args:
            known: The name in the journal; taken where there is no file yet.
        """
        path = self.root / "client_uuid"
        with contextlib.suppress(OSError):
            if found := path.read_text(encoding="utf-8", errors="replace").strip():
                return found
        name = known or str(uuid.uuid4())
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(name + "\n")
        except OSError as error:  # a full disk: the journal may still take it
            log.warning("%s cannot be written: %s", path, error)
        return name


def missing_home(home: Home) -> HomeError:
    """For those who look for one."""
    return HomeError(
        "there is no home here",
        where=str(home.root),
        todo=f"Start ajet-console in it, or name another with --home or {ENVIRONMENT}",
    )


def _read_token(path: Path) -> str:
    """The token in a file that is there.

    Raises:
        HomeError: it is empty, cannot be read, or is a link to nothing.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and os.access(path, os.W_OK):
            path.chmod(0o600)
            log.warning("%s was open to others (mode %o), now only you can read it", path, mode)
        for _ in range(50):  # the process that makes it may be between open and write
            if text := path.read_text().strip():
                return text
            time.sleep(0.01)
    except (OSError, UnicodeDecodeError) as error:
        if path.is_symlink() and not path.exists():
            raise HomeError(
                f"the token file is a link to {os.readlink(path)}, which is not there",
                str(path),
                "Delete the link, or create what it names",
            ) from error
        raise HomeError(
            f"the token file cannot be read: {getattr(error, 'strerror', None) or error}",
            str(path),
            "Make it a file of yours with mode 600, or delete it",
        ) from error
    raise HomeError("the token file is empty", str(path), "Delete it")


def _close_to_others(root: Path) -> None:
    """Nobody else reads the journal, the settings or their keys, whatever modes the files have.

    Raises:
        HomeError: it is no folder of ours alone, whose mode others may count on.
    """
    mode = stat.S_IMODE(root.stat().st_mode)
    if not mode & 0o077:
        return
    names = {entry.name for entry in root.iterdir()}
    ours = not names or names & _OURS or names >= _FOLDERS
    if mode & stat.S_ISVTX or not ours:
        raise HomeError(
            f"this folder is open to others (mode {mode:o}) and not made for a home",
            where=str(root),
            todo=f"Name one of its own with --home or {ENVIRONMENT}, or close it: chmod 700",
        )
    if not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    root.chmod(0o700)
    log.warning("%s was open to others (mode %o), now only you can enter it", root, mode)


class Role:
    """Holds a role (`proxy`, `engine`, `mock`) in a home for as long as the context is open.

    The lock is the truth: it goes with the process, however it ends. The JSON file beside it is for
    those who look for the process.
    """

    def __init__(self, home: Home, role: str) -> None:
        self.home = home
        self.role = role
        self._fd: int | None = None

    def __enter__(self) -> Self:
        fd = os.open(self.home.run / f"{self.role}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(20):  # who only looks (see `running`) holds the lock for an instant
            if _try_lock(fd):
                break
            time.sleep(0.01)
        else:
            os.close(fd)
            raise AlreadyRunning(self.role, _read(self.home, self.role))
        self._fd = fd
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._path.unlink(missing_ok=True)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def _path(self) -> Path:
        return self.home.run / f"{self.role}.json"

    def publish(self, **facts: Any) -> RunInfo:
        """Write the role's JSON file, whole or not at all."""
        info = RunInfo(role=self.role, pid=os.getpid(), started_at=time.time(), **facts)
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(msgspec.json.encode(info))
        temporary.chmod(0o600)
        temporary.replace(self._path)
        return info


def running(home: Home, role: str) -> RunInfo | None:
    """Who holds `role` in `home` now; None when nobody does (a stale file is not believed)."""
    try:
        fd = os.open(home.run / f"{role}.lock", os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _try_lock(fd) else _read(home, role)
    finally:
        os.close(fd)


def _read(home: Home, role: str) -> RunInfo | None:
    try:
        return msgspec.json.decode((home.run / f"{role}.json").read_bytes(), type=RunInfo)
    except (OSError, msgspec.MsgspecError):
        return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
