"""The clients of `clients.yaml`: what to set where, so that each asks the fake vLLM."""

import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from core.runtime.tls import verification_for

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


LIMIT = 3.0
"""Seconds the proxy may take to answer."""

AGENT_PROMPT = 16_384
"""Tokens that the first prompt of a coding agent comes near to."""
SMALL = (
    "The engine's window is {context} tokens; coding agents send 10,000 and more. Such a prompt is "
    "cut to the window, and its group is not trained on: use a larger model (`run engine --backend "
    "torch`) or a GPU server. With `run engine --strict-context` it is refused with a 400."
)


def window_of(base: str, key: str, cert: str) -> int | None:
    """Tokens of the served model's window; None when the proxy does not say.

    Args:
        base: The proxy's address without `/v1`.
        key: Its API key; empty when it asks for none.
        cert: File with the certificate it shows; may be empty.
    """
    import httpx
    import msgspec

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(
            verify=verification_for(base, cert), trust_env=False, timeout=LIMIT
        ) as client:
            answer = client.get(f"{base}/v1/models", headers=headers)
        answer_body: Any = msgspec.json.decode(answer.content)
        length = answer_body["data"][0]["max_model_len"]
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, LookupError, TypeError):
        return None
    return length if isinstance(length, int) and length > 0 else None
