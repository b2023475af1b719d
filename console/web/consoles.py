"""The consoles of all browsers: a process each, its memory, and its end."""

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from ajet_swarm.common.errors import AjetError
from core.roles import Identity

log = logging.getLogger(__name__)

FOLDER_PREFIX = "web-"
_END_SECONDS = 5.0
"""Time that a console has to end by itself."""
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONDONTWRITEBYTECODE")
"""Variables that a console gets from this process; others may be secrets."""
_FIRST_PAINT = 1_000
"""Bytes: what is smaller sets up the terminal."""


class TooManyConsoles(AjetError):
    """As many browsers as allowed have a console open."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """What the consoles attach to."""

    url: str
    cert: str = ""
    theme: str = "dark"


Send = Callable[[bytes], Awaitable[None]]
Close = Callable[[], Awaitable[None]]


class BrowserConsole(AppService):
    """One console process, by the packets of textual-serve."""

    def __init__(
        self, identity: Identity, command: Sequence[str], folder: Path, send: Send, close: Close
    ) -> None:
        super().__init__(
            "",
            write_bytes=self._painted,
            write_str=_nothing,
            close=close,
            download_manager=DownloadManager(),
        )
        self.identity = identity
        self.since = time.time()
        self.painted = asyncio.Event()
        """Set after the first paint."""
        self._arguments = command
        self._folder = folder
        self._send = send

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    def rss(self) -> int:
        """Return the resident memory of the process in bytes; 0 when it has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.pid else 0
        except psutil.Error:
            return 0

    async def on_meta(self, data: bytes) -> None:
        """Follow the exit of the console alone: it opens no address and delivers no file."""
        if b'"exit"' in data:
            await self.remote_close()

    async def on_packed(self, payload: bytes) -> None:
        """Ignore parts of files."""

    async def ended(self) -> None:
        """Wait until the process paints no more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def end(self) -> None:
        """End the process: it is asked to, and killed if it does not."""
        process = self._process
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.stop()
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 1.0)
            if process.returncode is None:
                process.kill()
            await process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, True)

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        """Return the variables of the console: those of textual-serve and few others."""
        built: dict[str, str] = super()._build_environment(width, height)
        return {
            name: value
            for name, value in built.items()
            if name in _PASSED or os.environ.get(name) != value or name in ("COLUMNS", "ROWS")
        }

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the console without a shell; nothing secret is on its command line."""
        self._process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            cwd=self._folder,
        )
        self._stdin = self._process.stdin
        return self._process

    async def _painted(self, data: bytes) -> None:
        await self._send(data)
        if len(data) > _FIRST_PAINT:
            self.painted.set()


class BrowserConsoles:
    """All consoles of the server.

    Args:
        folder: Folder for the consoles' own folders.
        attachment: Returns the proxy as it is now.
        most: Most consoles at once.
    """

    def __init__(self, folder: Path, attachment: Callable[[], Attachment], most: int) -> None:
        self._folder = folder
        self._attachment = attachment
        self._most = most
        self._open: set[BrowserConsole] = set()
        self._starting = 0

    @property
    def full(self) -> bool:
        """Whether no further console may be opened."""
        return len(self._open) + self._starting >= self._most

    @property
    def most(self) -> int:
        """Most consoles at once."""
        return self._most

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Return name, role, pid, memory and age of each console."""
        return [
            {
                "name": one.identity.name,
                "role": one.identity.role,
                "pid": one.pid,
                "rss_mb": round(one.rss() / 1e6, 1),
                "since": one.since,
            }
            for one in sorted(self._open, key=lambda one: one.since)
        ]

    async def open(
        self, identity: Identity, token: str, size: tuple[int, int], send: Send, close: Close
    ) -> BrowserConsole:
        """Start a console.

        Args:
            identity: Whose token it is.
            token: The token that the console attaches with.
            size: Columns and rows.
            send: Sends what the console paints.
            close: Closes the connection to the browser.

        Raises:
            TooManyConsoles: as many as allowed are open.
            AjetError: no proxy runs.
        """
        if self.full:
            raise TooManyConsoles(f"{self._most} consoles are open", todo="Close one, or wait")
        self._starting += 1
        try:
            attachment = await asyncio.to_thread(self._attachment)
            folder = await asyncio.to_thread(_folder_with, self._folder, token)
            command = _command(attachment, folder, identity)
            console = BrowserConsole(identity, command, folder, send, close)
            await console.start(*size)
            self._open.add(console)
        finally:
            self._starting -= 1
        return console

    async def end(self, console: BrowserConsole) -> None:
        """End one console; it counts until its process has ended."""
        try:
            await console.end()
        finally:
            self._open.discard(console)


def remove_leftovers(folder: Path) -> None:
    """Remove the folders of consoles whose server was killed. Blocks on the disk."""
    for one in folder.glob(f"{FOLDER_PREFIX}*/"):
        shutil.rmtree(one, ignore_errors=True)


def _folder_with(parent: Path, token: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    fd = os.open(folder / "link", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(token)
    return folder


def _command(attachment: Attachment, folder: Path, identity: Identity) -> Sequence[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "console.web.child",
        f"--folder={folder}",
        f"--attach={attachment.url}",
        f"--theme={attachment.theme}",
        f"--cert={attachment.cert}",
        *(() if identity.permits("rater") else ("--read-only",)),
    ]


async def _nothing(_text: str) -> None:
    """Send nothing: the console opens no address and delivers no file."""
