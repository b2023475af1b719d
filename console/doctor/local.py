"""Checks of this machine: Python, packages, terminal, home, disk, settings and keys."""

import locale
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from console.backend.mock_process import REMEDY, mock_collision
from console.doctor.finding import CheckContext, Finding, Level
from core.journal.damage import check_in_background
from core.journal.file import JournalError
from core.runtime.home import running
from core.runtime.sockets import is_loopback
from core.runtime.tls import absolute_path, tls_requested
from core.version import version
from core.whole_file import read_small

OLDEST = (3, 11)
WIDTH, HEIGHT = 80, 24
SPACE_LOW, SPACE_GONE = 1 << 30, 100 << 20
"""Free space in bytes below which the check warns, and below which it fails."""
CHECK_LIMIT = 3.0
"""Time limit for checking the journal's pages, in seconds."""
_NAME = "ajet-console"


def python(context: CheckContext) -> Sequence[Finding]:
    """Check the Python version and the operating system."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {version()}"
    todo = "On Windows, use WSL" if sys.platform == "win32" else ""
    todo = "Use Python 3.11 or newer" if sys.version_info < OLDEST else todo
    return [Finding("python", "version", "fail" if todo else "ok", text, todo)]


def packages(context: CheckContext) -> Sequence[Finding]:
    """Check that all required packages are installed in suitable versions."""
    try:
        needs = list(_requirements(metadata.requires(_NAME) or ()))
    except metadata.PackageNotFoundError:
        text = f"{_NAME} is not installed as a package: its requirements are unknown"
        return [Finding("packages", "versions", "warn", text, _install_again()), *_mock_package()]
    shown, wrong = list[str](), list[str]()
    level: Level
    for name, conditional, bounds in needs:
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            if not conditional:
                wrong.append(f"{name} is missing")
            continue
        shown.append(f"{name} {installed}")
        for sign, bound in bounds:
            if (_numbers(installed) < _numbers(bound)) == (sign == ">="):
                wrong.append(f"{name} {installed} is not {sign} {bound}")
    level, todo = ("fail", _install_again()) if wrong else ("ok", "")
    versions = Finding("packages", "versions", level, ", ".join(wrong or shown), todo)
    return [versions, *_mock_package()]


def _mock_package() -> Iterator[Finding]:
    """Yield a warning when another package `mock` hides ours."""
    if trouble := mock_collision():
        yield Finding("packages", "mock", "warn", trouble, REMEDY)


def _requirements(lines: Iterable[str]) -> Iterator[tuple[str, bool, list[tuple[str, str]]]]:
    """Yield the requirements without extras: name, whether conditional, version bounds.

    A conditional requirement applies only to some platforms. A bound is a pair of an operator
    (`>=` or `<`) and a version.
    """
    for line in lines:
        need, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", need.strip())
        if name is not None and "extra" not in marker:
            yield name[0], bool(marker), re.findall(r"(>=|<)\s*([\d.]+)", need)


def _install_again() -> str:
    """Return how to repair this installation."""
    source = Path(__file__).resolve().parents[2]
    if (source / "Makefile").exists() and (source / "pyproject.toml").exists():
        return f"Run `make run` in {source}: it sets everything up"
    if "pipx" in Path(sys.prefix).parts:
        return f"`pipx reinstall {_NAME}`"
    return f"Install {_NAME} again into {sys.prefix}"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text)[:3])


# --- terminal -----------------------------------------------------------------------------------


_term = partial(Finding, "terminal")


def terminal(context: CheckContext) -> Iterator[Finding]:
    """Check size, colours, encoding and clipboard of the terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield _term("tty", "warn", "this is not a terminal", "The console needs a terminal")
    else:
        size = shutil.get_terminal_size()
        large = size.columns >= WIDTH and size.lines >= HEIGHT
        todo = "" if large else f"Make it {WIDTH}x{HEIGHT} or larger"
        yield _term("size", "ok" if large else "warn", f"{size.columns}x{size.lines}", todo)
    name = os.environ.get("TERM", "")
    if name in ("", "dumb"):
        todo = "Set TERM to the terminal's type, such as xterm-256color"
        yield _term("TERM", "fail", f"TERM is {name or 'not set'}", todo)
    else:
        yield _term("TERM", "ok", name)
        yield _colours(name)
    encoding = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        own = os.environ.get("PYTHONIOENCODING")
        text = f"PYTHONIOENCODING is {own}" if own else f"the locale is {_locale()}"
        text += f", with the encoding {encoding}: other characters are shown as `?`"
        todo = "Unset it" if own else "Set LANG to a UTF-8 locale, such as C.UTF-8"
        yield _term("UTF-8", "warn", text, todo)
    else:
        yield _term("UTF-8", "ok", f"{encoding}, locale {_locale()}")
    if os.environ.get("TMUX"):
        yield _tmux()
    elif os.environ.get("STY"):
        todo = "Use tmux instead, or no multiplexer"
        yield _term("clipboard", "warn", "screen does not forward the clipboard", todo)
    else:
        yield _term("clipboard", "ok", "through OSC 52, if the terminal supports it")


def _locale() -> str:
    """Return the name of the locale that decides on characters."""
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, names), "C")


def _colours(name: str) -> Finding:
    if os.environ.get("NO_COLOR"):
        return _term("colours", "ok", "none: NO_COLOR is set")
    if os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return _term("colours", "ok", "24 bit")
    if "256color" in name or "direct" in name:
        return _term("colours", "ok", "256")
    todo = "Use `--theme ansi`, or set TERM=xterm-256color if the terminal supports it"
    return _term("colours", "warn", "probably 16", todo)


def _tmux() -> Finding:
    todo = "In tmux: `set -s set-clipboard on`"
    try:
        done = subprocess.run(
            ["tmux", "show-options", "-sv", "set-clipboard"],
            capture_output=True,
            text=True,
            timeout=1,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        text = "tmux does not report whether it forwards the clipboard"
        return _term("clipboard", "warn", text, todo)
    value = done.stdout.strip()
    if value == "on":
        return _term("clipboard", "ok", "tmux forwards the clipboard")
    return _term("clipboard", "warn", f"tmux set-clipboard is {value or 'not set'}", todo)


# --- home ---------------------------------------------------------------------------------------


_home = partial(Finding, "home")


def home(context: CheckContext) -> Iterator[Finding]:
    """Check the home folder, its running processes and its journal."""
    root = context.home.root
    if not root.exists():
        above = next(parent for parent in root.parents if parent.exists())
        if os.access(above, os.W_OK):
            yield _home("folder", "ok", f"{root} is created at the first start")
            return
        todo = "Name another home with --home or AJET_CONSOLE_HOME"
        yield _home("folder", "fail", f"{root} cannot be created in {above}", todo)
        return
    if not root.is_dir() or not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        todo = "Make it a folder you can write to, or name another with --home"
        yield _home("folder", "fail", f"{root} cannot be written", todo)
        return
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o077:
        text = f"{root} can be read by other users ({mode:o})"
        yield _home("folder", "warn", text, _chmod(700, root))
    else:
        yield _home("folder", "ok", str(root))
    for role in ("proxy", "engine", "mock"):
        if (info := running(context.home, role)) is not None:
            where = f", {info.url}" if info.url else ""
            yield _home(role, "ok", f"runs, pid {info.pid}{where}")
    yield _journal(context.home.journal)


def _journal(path: Path) -> Finding:
    if not path.exists():
        return _home("journal", "ok", "none yet")
    from core.journal.read_only import JournalFile

    try:
        file = JournalFile(path)
        size = path.stat().st_size / 1e6
        text = f"{file.last_seq()} events, {size:.1f} MB"
        text += _checked(path)
    except AjetError as error:
        return _home("journal", "fail", error.what, error.todo or "Move the file away")
    if not os.access(path, os.W_OK):
        return _home("journal", "fail", f"{path} cannot be written", _chmod(600, path))
    return _home("journal", "ok", text)


def _checked(path: Path) -> str:
    """Check the journal's pages within a time limit; return the result for the finding.

    Raises:
        JournalError: a page is damaged.
    """
    damage: list[str] = []
    check_in_background(path, damage.append).join(CHECK_LIMIT)
    if not damage:
        return f", not fully checked within {CHECK_LIMIT:g} s"
    if damage[0]:
        todo = "Restart the proxy: it sets the damaged file aside and keeps what can be read"
        raise JournalError(f"damaged: {damage[0]}", str(path), todo)
    return ", no damaged page"


def _chmod(mode: int, path: Path) -> str:
    return f"`chmod {mode} {path}`"


def disk(context: CheckContext) -> Sequence[Finding]:
    """Check the free space on the disk of the home."""
    root = context.home.root
    place = next(parent for parent in (root, *root.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free at {place}"
    level: Level = "fail" if free < SPACE_GONE else "warn" if free < SPACE_LOW else "ok"
    todo = "" if level == "ok" else "Free some space: a journal that cannot grow stops all rewards"
    return [Finding("disk", "space", level, text, todo)]


# --- settings and keys --------------------------------------------------------------------------


def settings(context: CheckContext) -> Iterator[Finding]:
    """Check the settings in file and environment."""
    if context.settings is None:
        yield Finding("settings", "file", "fail", context.trouble, "Correct the settings")
        return
    file = context.home.config
    text = str(file) if file.exists() else "all defaults: there is no config.yaml"
    yield Finding("settings", "file", "ok", text)
    if unknown := context.settings.unknown_servers():
        todo = "Correct the name: these settings have no effect"
        yield Finding("settings", "servers", "warn", unknown, todo)


_key = partial(Finding, "keys")


def keys(context: CheckContext) -> Iterator[Finding]:
    """Check token, keys, certificates, and listeners that other machines can reach."""
    token = context.token_file or context.home.token_file
    if not token.exists():
        if token.is_symlink():
            text = f"{token} is a link to {os.readlink(token)}, which does not exist"
            yield _key("control token", "fail", text, "Delete the link")
        else:
            missing: Level = "fail" if context.token_file else "ok"
            yield _key("control token", missing, f"no {token} yet")
    elif mode := stat.S_IMODE(token.stat().st_mode) & 0o077:
        text = f"other users can read it ({mode:03o})"
        yield _key("control token", "fail", text, _chmod(600, token))
    else:
        yield _key("control token", "ok", "only you can read it")
    own = context.settings
    if own is None:
        return
    key = own.proxy.api_key or own.proxy.api_key_file
    yield _listener("fake vLLM", own.proxy.host, key, "Set proxy.api_key_file, or bind 127.0.0.1")
    todo = "Bind 127.0.0.1: the swarm protocol has no key"
    yield _listener("embedded engine", own.engine.host, "", todo)
    if own.proxy.api_key_file:
        yield _key_file("key of /v1", Path(own.proxy.api_key_file).expanduser())
    if own.upstream.key_file:
        yield _key_file("upstream key", Path(own.upstream.key_file).expanduser())
    yield from _tls(absolute_path(own.proxy.tls_cert), absolute_path(own.proxy.tls_key))
    file = context.home.config
    has_key = file.exists() and (own.proxy.api_key or own.upstream.key)
    if has_key and (mode := stat.S_IMODE(file.stat().st_mode) & 0o077):
        text = f"config.yaml may contain a key, and other users can read it ({mode:03o})"
        yield _key("settings", "warn", text, _chmod(600, file))


def _listener(name: str, host: str, key: str, todo: str) -> Finding:
    if is_loopback(host):
        return _key(name, "ok", f"listens on {host}: only this machine")
    if key:
        return _key(name, "ok", f"listens on {host}, with a key")
    return _key(name, "fail", f"listens on {host} without a key", todo)


def _key_file(what: str, path: Path) -> Finding:
    try:
        empty = not read_small(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        return _key(what, "fail", f"{path}: {error}", "Name a file with the key")
    if empty:
        return _key(what, "fail", f"{path} is empty", "Write the key to it")
    if mode := stat.S_IMODE(path.stat().st_mode) & 0o077:
        text = f"other users can read {path} ({mode:03o})"
        return _key(what, "warn", text, _chmod(600, path))
    return _key(what, "ok", str(path))


def _tls(cert: str, key: str) -> Iterator[Finding]:
    try:
        if tls_requested(cert, key):
            yield _key("TLS", "ok", cert)
    except UsageError as error:
        yield _key("TLS", "fail", str(error))
