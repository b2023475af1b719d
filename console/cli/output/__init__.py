"""The output of one command: lines of text, or with `--json` one envelope.

The envelope is one JSON object. It has the fields `ok`, `verb`, `exit_code`, after a failure
`error`, and beside them the fields of the verb. See docs/guide/agents.md.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plain

ANSWERS = frozenset({0, 3, 4})
"""Exit codes of a command that did what it was asked; 3 and 4 are verdicts of `progress`."""


class Output:
    """What one command prints.

    Args:
        envelope: Whether the result is printed as one JSON object at the end.
    """

    def __init__(self, *, envelope: bool = False) -> None:
        self.envelope = envelope
        self.stream = False
        """Whether JSON values are printed as they come: only an error gets an envelope."""
        self.dry_run = False
        self.verb = ""
        self._data: list[Any] = []
        self._lines: list[str] = []
        self._refused = ""
        self._steps: list[Mapping[str, Any]] = []

    def configure(self, verb: str, *, json: bool, dry_run: bool) -> None:
        """Set what is known once the command line is parsed.

        Args:
            verb: The command, and its verb: "runs list".
            json: Whether `--json` is given.
            dry_run: Whether `--dry-run` is given.
        """
        self.verb, self.dry_run, self.envelope = verb, dry_run, json

    def say(self, text: str) -> None:
        """Print a line; in an envelope it becomes a part of `text`."""
        if self.envelope and not self.stream:
            self._lines.append(text)
        else:
            sys.stdout.write(text + "\n")

    def add(self, data: Any) -> None:
        """Print a JSON value; in an envelope its fields stand beside those of the envelope."""
        if self.envelope and not self.stream:
            self._data.append(data)
        else:
            _write_json(indented(data))

    def plan(self, message: str, **fields: Any) -> str:
        """Record what a dry run would do, and return it as a message.

        Args:
            message: What would be done: "would stop the engine of gpu".
            fields: More about the step, such as `command` and `args`.
        """
        shown = {name: value for name, value in fields.items() if value not in (None, "")}
        self._steps.append({"message": message, **shown})
        return message

    def refuse(self, message: str) -> None:
        """Report on standard error that a part was refused; the envelope's error is the first."""
        self._refused = self._refused or message
        sys.stderr.write(f"ajet-console: {plain(message)}\n")

    def loses(self, loss: str) -> None:
        """Record what the command would lose, for a dry run."""
        self.say(self.plan(f"would lose {loss}"))

    def close(self, code: int, error: BaseException | None = None) -> None:
        """Print the envelope, if there is one.

        Args:
            code: The exit code.
            error: The error that ended the command; None when it came to its end.
        """
        if self.dry_run and not self.envelope and error is None:
            self.say("dry run: nothing was changed")
        if not self.envelope or (self.stream and error is None):
            return
        fields: dict[str, Any] = {"ok": code in ANSWERS, "verb": self.verb, "exit_code": code}
        if self.dry_run:
            fields |= {"dry_run": True, "steps": self._steps}
        if error is not None:
            fields["error"] = _error_fields(error)
        elif not fields["ok"]:
            last = self._lines[-1] if self._lines else "it was not done, or not for all: see below"
            message = self._refused or last
            fields["error"] = {"message": message, "where": "", "todo": ""}
        for name, value in self._fields().items():
            fields.setdefault(name, value)
        if self.stream:
            _write_json(_encoded({"kind": "error", **fields}).decode())
        else:
            _write_json(indented(fields))
        sys.stdout.flush()

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the verb."""
        fields: dict[str, Any] = {}
        if len(self._data) == 1 and isinstance(self._data[0], Mapping):
            fields |= self._data[0]
        elif len(self._data) == 1 and isinstance(self._data[0], Sequence):
            fields["results"] = self._data[0]
        elif self._data:
            fields["results"] = self._data
        planned = {step["message"] for step in self._steps}
        if lines := [line for line in self._lines if line not in planned]:
            fields["text"] = "\n".join(lines)
        return fields


def indented(data: Any) -> str:
    """Return data as indented JSON."""
    import msgspec

    return msgspec.json.format(_encoded(data), indent=2).decode()


def _write_json(text: str) -> None:
    """Print JSON, with escapes for what the encoding of the output does not have."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if encoding.lower() not in ("utf-8", "utf8"):
        import json

        text = "".join(sign if sign.isascii() else json.dumps(sign)[1:-1] for sign in text)
    sys.stdout.write(text + "\n")


def _encoded(data: Any) -> bytes:
    from core.jsonio import encode_full  # only where JSON is printed

    return encode_full(data)


def _error_fields(error: BaseException) -> dict[str, str]:
    if isinstance(error, AjetError):
        return {"message": error.what, "where": error.where, "todo": error.todo}
    if isinstance(error, KeyboardInterrupt):
        return {"message": "interrupted", "where": "", "todo": ""}
    what = " ".join(f"internal error, {type(error).__name__}: {error}".split())
    return {"message": what, "where": "", "todo": "AJET_CONSOLE_DEBUG=1 shows where"}


_current: ContextVar[Output | None] = ContextVar("output of the command", default=None)
_PLAIN = Output()


def output() -> Output:
    """Return the output of the command that runs; plain text outside of one."""
    return _current.get() or _PLAIN


@contextlib.contextmanager
def opened(words: Sequence[str]) -> Iterator[Output]:
    """Open the output of a command line."""
    chosen = Output(envelope=_asks_for_json(words))
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)


def _asks_for_json(words: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON, also when it cannot be parsed."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)
