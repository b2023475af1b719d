"""The form in which the settings of clients are kept, printed and documented.

`%BASE%` stands for the proxy's address without `/v1`, `%KEY%` for the key, `%MODEL%` for a model's
name (any is accepted unless one was set), `%CONTEXT%` for the window of the policy, `%OUTPUT%`
for the longest answer, both in tokens.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Snippet:
    """Something to paste."""

    language: str
    """Of the text, as a fenced block of Markdown names it."""
    text: str
    file: str = ""
    """Where it belongs; empty for a program or a shell."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client and how it is set up."""

    name: str
    title: str
    api: str
    """Which of our APIs it speaks."""
    snippets: tuple[Snippet, ...]
    note: str = ""


def client(name: str, title: str, api: str, *snippets: Snippet, note: str = "") -> Client:
    """Return an entry of the table."""
    return Client(name, title, api, snippets, note)


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
