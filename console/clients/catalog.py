"""The clients of `clients.yaml`: what to set where, so that each asks the fake vLLM."""

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

DEFAULT_BASE = "http://127.0.0.1:8000"
DEFAULT_MODEL = "ajet"
DEFAULT_CONTEXT = 32768
"""Tokens of a window that is not known."""
LONGEST_OUTPUT = 8192
"""Tokens of an answer, where the window has room for them and as many again."""
ANY_KEY = "any-key"
"""Without a key of its own the proxy takes any, but clients want one."""
OWN_KEY = "YOUR-KEY"
"""Stands for a key that is set and not shown."""
_FILE = Path(__file__).with_name("clients.yaml")


class Snippet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to paste."""

    language: str
    """Of the text, as a fenced block of Markdown names it."""
    text: str
    file: str = ""
    """Where it belongs; empty for a program or a shell."""


class Client(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client and how it is set up."""

    name: str
    title: str
    api: str
    """Which of our APIs it speaks."""
    snippets: tuple[Snippet, ...]
    note: str = ""
    command: str = ""
    """The command that starts it, by which it is found on this machine; empty for a library."""
    agent: bool = False
    """A coding agent: its first prompt is longer than the window of a small policy."""


@lru_cache(maxsize=1)
def clients() -> Sequence[Client]:
    """Return all clients, libraries first. Reads the disk once."""
    return tuple(msgspec.yaml.decode(_FILE.read_bytes(), type=list[Client]))


def find(name: str) -> Sequence[Client]:
    """Return the client of that name, else those whose names begin with it."""
    exact = tuple(client for client in clients() if client.name == name)
    return exact or tuple(client for client in clients() if client.name.startswith(name))


def installed() -> Sequence[Client]:
    """Return the client programs on the path. Reads the disk."""
    return [client for client in clients() if client.command and shutil.which(client.command)]


def fill(
    text: str,
    base: str = DEFAULT_BASE,
    key: str = ANY_KEY,
    model: str = DEFAULT_MODEL,
    context: int = DEFAULT_CONTEXT,
) -> str:
    """Return a text, such as that of a snippet, with the values in place of its marks."""
    output = str(min(LONGEST_OUTPUT, context // 2))
    text = text.replace("%CONTEXT%", str(context)).replace("%OUTPUT%", output)
    return text.replace("%BASE%", base).replace("%KEY%", key).replace("%MODEL%", model)
