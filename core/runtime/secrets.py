"""API keys in files and environment variables, and command lines with their keys redacted."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import UsageError
from core.settings import ProxySettings, Settings
from core.settings.effective import HIDDEN
from core.whole_file import read_small

SECRET_FLAGS = ("--api-key",)
"""Flags whose value is a secret."""
_PLACEHOLDER = re.compile(
    r"""
    (sk|api|key|token)?[-_]?(x{3,}|\*{3,}|\.{3,})[-_x*.\w]*   # sk-xxx, ***, sk-...
    | <.*> | \[.*\] | \{.*\} | \$.*                            # <key>, {KEY}, $KEY
    | .*\b(your|my|insert|replace|put|paste)[-_ ]?.*(key|token|here|me)\b.*  # your-key, replace-me
    | your[-_ ].* | change[-_ ]?me | place[-_ ]?holder | todo | fixme
    | (openai[-_])?api[-_ ]?key | sk-(\.+|test|fake|dummy|example|key|1234\w*|abc\w{0,6})?
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_placeholder(key: str) -> bool:
    """Return whether `key` is a placeholder: `sk-xxx`, `your-key`, `<key>`."""
    return _PLACEHOLDER.fullmatch(key) is not None


def env_key(name: str, what: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the key in an environment variable.

    Args:
        name: Name of the variable.
        what: Name of the key in errors.
        environ: Variables; those of the process if omitted.

    Raises:
        UsageError: The name is invalid, or the variable has no usable key; never shows its value.
    """
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    if not plain or len(name) > 64:
        todo = "Put the key in a variable and give its name, never the key itself"
        raise UsageError(f"{what} is not given by the name of a variable", "", todo)
    key = (os.environ if environ is None else environ).get(name, "").strip()
    todo = f"Set {name} to a real key"
    if not key:
        raise UsageError(f"{what} is missing: the variable is not set", name, todo)
    if is_placeholder(key):
        raise UsageError(f"{what} is a placeholder", name, todo)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{what} holds spaces or odd letters", name, todo)
    return key


def read_key(file: str, what: str) -> str:
    """Return the key in a file, without surrounding space.

    Raises:
        UsageError: It is unreadable, empty, or has characters that are invalid in a key.
    """
    try:
        key = read_small(Path(file).expanduser()).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{what} cannot be read: {why}", file, "Name a file with it") from error
    if not key:
        raise UsageError(f"{what} is missing: the file is empty", file, "Put the key in it")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{what} holds what cannot be in a key", file, "One line, no spaces")
    return key


def proxy_key(proxy: ProxySettings) -> str:
    """Return the key that `/v1` requires; empty for none.

    Raises:
        UsageError: Its file is unusable.
    """
    return read_key(proxy.api_key_file, "the key of /v1") if proxy.api_key_file else proxy.api_key


def with_proxy_key(settings: Settings) -> Settings:
    """Return `settings` with the key of `/v1` read from its file.

    Raises:
        UsageError: As for `proxy_key`.
    """
    proxy = msgspec.structs.replace(settings.proxy, api_key=proxy_key(settings.proxy))
    return msgspec.structs.replace(settings, proxy=proxy)


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Return `argv` with `HIDDEN` in place of each key."""
    redacted: list[str] = []
    hide = False
    for word in argv:
        flag, sign, _ = word.partition("=")
        if hide:
            redacted.append(HIDDEN)
        else:
            redacted.append(f"{flag}={HIDDEN}" if sign and flag in SECRET_FLAGS else word)
        hide = not hide and word in SECRET_FLAGS
    return redacted


def redacted_argv(argv: Sequence[str]) -> str:
    """Return `argv` as JSON with keys redacted, for a run file."""
    return json.dumps(without_secrets(argv))


def has_redacted(argv: Sequence[str]) -> bool:
    """Return whether `argv` has redacted keys, so that it cannot start the process again."""
    return any(word == HIDDEN or word.endswith(f"={HIDDEN}") for word in argv)
