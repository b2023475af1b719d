"""The home: the folder of all files that the program writes, and the processes running in it.

Layout of `AJET_CONSOLE_HOME`: `config.yaml`, `journal.db`, `token` (the owner's), `tokens.json`
(those of others), `client_uuid` (the proxy's id on swarm servers), `engine/` (checkpoints),
`logs/`, `run/<role>.json` (pid, port, url of a running process) beside `run/<role>.lock`.
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
from core.whole_file import SHORTEST_TOKEN, make_private, read_small, replace_file

if sys.platform != "win32":
    import fcntl

_OURS = frozenset(
    {
        "token",
        "tokens.json",
        "client_uuid",
        "journal.db",
        "config.yaml",
        "rewards.yaml",
        "hooks",
        "datasets",
    }
)
"""Names of files in a home; a folder with any of them counts as a home."""
_FOLDERS = frozenset({"run", "logs", "engine"})

log = logging.getLogger(__name__)

ENVIRONMENT = "AJET_CONSOLE_HOME"


class HomeError(AjetError):
    """The home is unusable."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Published facts about a running process."""

    role: str
    pid: int
    started_at: float
    """Unix seconds."""
    host: str = ""
    port: int = 0
    url: str = ""
    """Address it listens on, without a trailing slash; empty if it does not listen."""
    swarm: str = ""
    """Proxy only: its swarm servers at the start, as text."""
    extra: dict[str, str] = msgspec.field(default_factory=dict)


class AlreadyRunning(AjetError):
    """Another process holds the role in this home."""

    def __init__(self, role: str, info: RunInfo | None) -> None:
        self.info = info
        by = f" (pid {info.pid}{', ' + info.url if info.url else ''})" if info else ""
        super().__init__(
            f"{role} already runs in this home{by}",
            todo="Use it, stop it, or give another home with AJET_CONSOLE_HOME",
        )


def default_root() -> Path:
    """Return the home named by the environment, else the platform's folder for user data."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("ajet-console")


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one root; `open` creates and checks them."""

    root: Path

    @classmethod
    def open(cls, root: Path | None = None) -> Self:
        """Create the folders and check that they are writable.

        Raises:
            HomeError: The folder cannot be created or written, or it has other contents and is
                accessible to other users.
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
        """Return the home without creating or changing anything."""
        return cls((root or default_root()).absolute())

    @property
    def exists(self) -> bool:
        """Whether the home was opened before."""
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
        """Return the home's control token; create it at the first call, with mode 0600.

        A file that other users can read gets that mode too.

        Raises:
            HomeError: There is no home yet, or the file is empty, unreadable or a broken link.
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
        """Return the id of this home's proxy on swarm servers; create it at the first call.

        It is stored in a file too, not only in the journal: without it a proxy whose journal is
        lost cannot find the episodes that it holds.

        Args:
            known: The id in the journal; used if there is no file yet.
        """
        path = self.root / "client_uuid"
        with contextlib.suppress(OSError):
            if name := read_small(path).decode(errors="replace").strip():
                return name
        name = known or str(uuid.uuid4())
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(name + "\n")
        except OSError as error:  # e.g. a full disk: the journal may still store it
            log.warning("%s cannot be written: %s", path, error)
        return name


def missing_home(home: Home) -> HomeError:
    """Return the error for a command that needs an existing home."""
    return HomeError(
        "there is no home here",
        where=str(home.root),
        todo=f"Start ajet-console in it, or name another with --home or {ENVIRONMENT}",
    )


def _read_token(path: Path) -> str:
    """Return the token in an existing file.

    Raises:
        HomeError: It is empty, unreadable or a broken link.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077 and os.access(path, os.W_OK) and not path.is_symlink():
            make_private(path, 0o600)
            log.warning("%s was open to others (mode %o), now only you can read it", path, mode)
        for _ in range(50):  # its creator may be between open and write
            if text := read_small(path).decode().strip():
                break
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
    if len(text) < SHORTEST_TOKEN:
        what = f"has only {len(text)} characters" if text else "is empty"
        raise HomeError(f"the token file {what}", str(path), "Delete it")
    return text


def _close_to_others(root: Path) -> None:
    """Make the folder private, so that no other user reads journal, settings or keys.

    Raises:
        HomeError: It is shared, or has contents that are not a home's.
    """
    mode = stat.S_IMODE(root.stat().st_mode)
    if not mode & 0o077:
        return
    names = {entry.name for entry in root.iterdir()}
    ours = not names or names & _OURS or names >= _FOLDERS
    if mode & stat.S_ISVTX or not ours or root.is_symlink():
        why = "a link" if root.is_symlink() else "not made for a home"
        raise HomeError(
            f"this folder is open to others (mode {mode:o}) and {why}",
            where=str(root),
            todo=f"Name one of its own with --home or {ENVIRONMENT}, or close it: chmod 700",
        )
    if not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    make_private(root, 0o700)
    log.warning("%s was open to others (mode %o), now only you can enter it", root, mode)


class Role:
    """Context that holds a role (`proxy`, `engine`, `mock`) in a home.

    The lock decides: it is released when the process ends in any way. The JSON file beside it
    describes the process to others.
    """

    def __init__(self, home: Home, role: str) -> None:
        self.home = home
        self.role = role
        self._fd: int | None = None

    def __enter__(self) -> Self:
        fd = os.open(self.home.run / f"{self.role}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(20):  # `running` holds the lock for an instant
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
        """Write the role's JSON file atomically; block until it is on the disk.

        Raises:
            OSError: It cannot be written.
        """
        info = RunInfo(role=self.role, pid=os.getpid(), started_at=time.time(), **facts)
        replace_file(self._path, msgspec.json.encode(info), 0o600)
        return info


def running(home: Home, role: str) -> RunInfo | None:
    """Return the process that holds `role` in `home`; None for none (a stale file is ignored)."""
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
