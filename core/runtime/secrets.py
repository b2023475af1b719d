"""Keys that stand in a file of their own, and command lines without the keys they were given."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import UsageError
from core.settings import ProxySettings, Settings
from core.settings.effective import HIDDEN

SECRET_FLAGS = ("--api-key",)
"""Flags whose value is nobody else's business."""
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
    """Whether a key only stands where one should be: `sk-xxx`, `your-key`, `<key>`."""
    return _PLACEHOLDER.fullmatch(key) is not None


def env_key(name: str, what: str, environ: Mapping[str, str] | None = None) -> str:
    """The key in an environment variable.

    Args:
        name: Of the variable.
        what: Whose key, for people.
        environ: Variables; those of the process when left out.

    Raises:
        UsageError: the name is none, or the variable holds no key; never says what it holds.
    """
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    if not plain or len(name) > 64:
        todo = "Put the key in a variable and give its name, never the key itself"
        raise UsageError(f"{what} is not given by the name of a variable", "", todo)
    found = (os.environ if environ is None else environ).get(name, "").strip()
    todo = f"Set {name} to a real key"
    if not found:
        raise UsageError(f"{what} is missing: the variable is not set", name, todo)
    if is_placeholder(found):
        raise UsageError(f"{what} is a placeholder", name, todo)
    if not found.isascii() or not found.isprintable() or " " in found:
        raise UsageError(f"{what} holds spaces or odd letters", name, todo)
    return found


def read_key(file: str, what: str) -> str:
    """The key a file holds, without the space around it.

    Raises:
        UsageError: it cannot be read, is empty, or holds what cannot be in a key.
    """
    try:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{what} cannot be read: {why}", file, "Name a file with it") from error
    if not key:
        raise UsageError(f"{what} is missing: the file is empty", file, "Put the key in it")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{what} holds what cannot be in a key", file, "One line, no spaces")
    return key


def proxy_key(proxy: ProxySettings) -> str:
    """The key that `/v1` asks for; empty for none.

    Raises:
        UsageError: it stands in a file that cannot be used.
    """
    return read_key(proxy.api_key_file, "the key of /v1") if proxy.api_key_file else proxy.api_key


def with_proxy_key(settings: Settings) -> Settings:
    """`settings` with the key of `/v1` itself in place of its file.

    Raises:
        UsageError: as of `proxy_key`.
    """
    proxy = msgspec.structs.replace(settings.proxy, api_key=proxy_key(settings.proxy))
    return msgspec.structs.replace(settings, proxy=proxy)


def without_secrets(argv: Sequence[str]) -> list[str]:
    """`argv` with `HIDDEN` in place of each key."""
    found: list[str] = []
    hide = False
    for word in argv:
        flag, sign, _ = word.partition("=")
        if hide:
            found.append(HIDDEN)
        else:
            found.append(f"{flag}={HIDDEN}" if sign and flag in SECRET_FLAGS else word)
        hide = not hide and word in SECRET_FLAGS
    return found


def redacted_argv(argv: Sequence[str]) -> str:
    """`argv` as a run file has it: JSON, without keys."""
    return json.dumps(without_secrets(argv))


def has_redacted(argv: Sequence[str]) -> bool:
    """Whether keys were taken out of `argv`: it cannot start the same process again."""
    return any(word == HIDDEN or word.endswith(f"={HIDDEN}") for word in argv)
