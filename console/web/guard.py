"""Restricts a process to its own folder: it opens no other file of the machine, starts no program.

The console offers datasets, exports and an editor by paths of the machine it runs on. A browser
shows it to somebody who may not have access to that machine.
"""

import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_READ: Final = ("/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo", "/etc/ssl")
_PACKAGES: Final = ("ajet_swarm", "console", "core", "engine", "mock", "proxy")
_STARTS: Final = frozenset(
    {
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "pty.spawn",
    }
)
_LISTS: Final = frozenset({"os.listdir", "os.scandir", "glob.glob"})
_CHANGES: Final = frozenset(
    {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link",
     "os.symlink", "os.truncate", "shutil.rmtree"}
)  # fmt: skip
_TWO_PATHS: Final = frozenset({"os.rename", "os.link", "os.symlink"})
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class NotInBrowser(PermissionError):
    """A console in a browser may not use this file or program."""


def restrict(folder: Path, readable: Sequence[str] = ()) -> None:
    """Restrict this process, for good.

    Args:
        folder: The only folder it may write to.
        readable: Files that it may read besides those of Python and of this program.
    """
    sys.addaudithook(auditor(folder, readable))


def auditor(folder: Path, readable: Sequence[str] = ()) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook of `restrict`."""
    own = os.path.realpath(folder)
    packages = [place for name in _PACKAGES for place in import_module(name).__path__]
    places = [*sys.path, *packages, *sysconfig.get_paths().values(), sys.prefix, sys.base_prefix]
    program = {os.path.realpath(place) for place in (*places, *_READ, *readable) if place}
    program.discard("/")
    program.add(f"/proc/{os.getpid()}")

    def inside(path: object, places: Sequence[str] | set[str]) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a descriptor that is open already
        real = os.path.realpath(os.fsdecode(path))
        return any(real == place or real.startswith(place + os.sep) for place in places)

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            changes = bool((flags or 0) & _WRITE_FLAGS) or bool(set(mode or "") & set("wax+"))
            null = path == os.devnull
            if not (inside(path, {own}) or null or (not changes and inside(path, program))):
                raise NotInBrowser(1, "not available in a browser", path)
        elif event in _STARTS:
            raise NotInBrowser(1, "no program is started from a browser")
        elif event in _LISTS and not inside(args[0] or ".", {own, *program}):
            raise NotInBrowser(1, "not available in a browser", args[0])
        elif event in _CHANGES:
            for path in args[: 2 if event in _TWO_PATHS else 1]:
                if not inside(path, {own}):
                    raise NotInBrowser(1, "not available in a browser", path)

    return check
