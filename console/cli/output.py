"""The output of one command: lines of text, or with `--json` one envelope.

The envelope is one JSON object. It has the fields `ok`, `verb`, `exit_code`, after a failure
`error`, and beside them the fields of the verb. See docs/guide/agents.md.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line, plain

if TYPE_CHECKING:
    from console.cli.options import Args

ANSWERS = frozenset({0, 3, 4})
"""Exit codes of a command that did what it was asked; 3 and 4 are verdicts of `progress`."""


class Declined(Exception):
    """The operator said no; the message says what was left undone."""


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

    def configure(self, args: "Args") -> None:
        """Set what is known once the command line is parsed."""
        values = vars(args)
        self.verb, self.envelope = args.words, values.get("json", False)
        self.dry_run = values.get("dry_run", False)

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

    def close(self, code: int, error: AjetError | None = None) -> None:
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
            fields["error"] = {"message": error.what, "where": error.where, "todo": error.todo}
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


# --- what verbs print and ask --------------------------------------------------------------------


def say(text: str) -> None:
    """Write one line to standard output; with `--json` it becomes a part of the envelope."""
    output().say(text)


def say_json(data: Any) -> None:
    """Write the fields of a verb into the envelope of `--json`."""
    output().add(data)


def say_result(args: "Args", data: Any, lines: Iterable[str]) -> int:
    """Print data with `--json`, lines without; return the exit code of success."""
    if args.json:
        say_json(data)
    else:
        for line in lines:
            say(line.rstrip())
    return 0


def would(act: str) -> bool:
    """In a dry run, say what would be done and return True: "stop the engine of gpu"."""
    if output().dry_run:
        say(output().plan(f"would {act}"))
    return output().dry_run


@contextlib.contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line on standard error while the block runs; only on a terminal.

    Yields:
        A function that replaces the line.
    """
    from rich.console import Console
    from rich.text import Text

    def shown(line: str) -> Text:
        return Text(f"{one_line(line, 100)} …")

    with Console(stderr=True).status(shown(text)) as status:
        yield lambda line: status.update(shown(line))


def confirm(act: str, lost: Sequence[str] = (), yes: bool = False, instead: str = "") -> bool:
    """Ask before something is destroyed; a dry run does not ask.

    Args:
        act: The action, such as "Stop the engine of gpu".
        lost: What the action loses, in sentences, as of a plan.
        yes: The operator already agreed with `--yes`.
        instead: What else the operator can do, for the refusal: "resume it first".

    Raises:
        UsageError: standard input is not a terminal.
    """
    losses = " ".join(lost)
    if output().dry_run:
        if losses:
            say(output().plan(losses))
        return True
    if yes:
        return True
    if not sys.stdin.isatty():
        shown = f": {losses.removesuffix('.')}" if losses else ""
        todo = f"Add --yes to do it{', or ' if instead else ''}{instead}"
        raise UsageError(f"{act}: needs confirmation{shown}", todo=todo)
    sys.stderr.write(f"{act}?{' ' if losses else ''}{losses} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def agree(
    act: str,
    lost: Sequence[str] = (),
    yes: bool = False,
    instead: str = "",
    otherwise: str = "nothing was changed",
) -> None:
    """Ask as `confirm`, and end the command with exit code 1 if the operator says no.

    Raises:
        Declined: the operator says no; prints `otherwise`.
        UsageError: standard input is not a terminal.
    """
    if not confirm(act, lost, yes, instead):
        raise Declined(otherwise)
