"""Target files: what stands in them, checked before anything is asked."""

import difflib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ajet_swarm.common.urls import web_address
from mock.targets.answer_path import Path as AnswerPath
from mock.targets.answer_path import Reading, read_answer
from mock.targets.spec_fields import Sheet, TargetFileError, joined, near
from mock.targets.spec_user import read_user
from mock.targets.templates import PLACES, places, steps

KINDS = ("fake", "command", "http", "python")
DIALECTS = ("chat", "responses", "messages")
READY = Path(__file__).with_name("presets")
DRY = "Say hello in one short sentence."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\{([A-Za-z_]{2,20})\}")
_METHODS = ("POST", "GET", "PUT", "PATCH")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What every kind has."""

    path: Path
    name: str
    kind: str
    timeout: float
    """Seconds one question may take."""
    dry: str
    """What is asked first, to see whether the target works; empty asks nothing."""
    base_url: str
    """Where the application finds the model; empty: the address the run was started with."""
    model: str
    sessions: bool
    """Each conversation has an address of its own, by which its row is known."""
    env: tuple[str, ...]
    """Variables it gets from the mock user's own environment; values are nobody's business."""
    used: frozenset[str] = frozenset()
    """Names in braces that its templates have."""
    user: Mapping[str, Any] = field(default_factory=dict)
    """The model that plays the user, as the file names it; empty when it does not."""

    @property
    def told(self) -> str:
        """What names it on a command line: its name alone when it comes with the program."""
        return self.path.stem if self.path.parent == READY else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSpec(Spec):
    """The fake vLLM, or any server that speaks like it."""

    dialect: str
    headers: Mapping[str, str]
    params: Mapping[str, Any]
    """Further fields of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """A program that is started for each question."""

    command: tuple[str, ...]
    then: tuple[str, ...]
    """For further turns; empty when it takes one question only."""
    stdin: str
    """Template of its standard input; empty closes it."""
    set: Mapping[str, str]
    files: Mapping[str, str]
    """Written into the conversation's folder before the first turn."""
    folder: str
    answer: Reading
    codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """How a stream of events is read."""

    path: AnswerPath
    told: str
    event: str = ""
    """Only events of this name."""
    done: str = "[DONE]"
    """Data, or name of the event, that ends the stream."""
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSpec(Spec):
    """An application that answers requests."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: Any
    answer: AnswerPath
    told: str
    """`answer` as it stands in the file; empty: the whole text."""
    sse: Events | None
    app_session: AnswerPath
    """Where its answers name the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSpec(Spec):
    """A function, run in a process of its own."""

    function: str
    folder: Path
    fresh: bool
    """A new process for each question."""
    set: Mapping[str, str] = field(default_factory=dict)


# --- finding ------------------------------------------------------------------------------------


def ready_names() -> list[str]:
    """Targets that come with the program."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


def find_target(told: str) -> Path:
    """The file a target's name or path means.

    Raises:
        TargetFileError: there is none.
    """
    path = Path(told).expanduser()
    if path.is_file():
        return path
    if told in ready_names():
        return READY / f"{told}.yaml"
    there = [*ready_names(), *(str(one) for one in Path().glob("*.yaml"))]
    close = difflib.get_close_matches(told, there, 3, 0.5)
    hint = f"{near(told, there)[2:].capitalize()} " if close else ""
    raise TargetFileError(
        "there is no such target",
        told,
        f"{hint}It is a YAML file, or one of {', '.join(ready_names())}",
    )


# --- reading ------------------------------------------------------------------------------------


def read_target(path: Path) -> Spec:
    """A target file.

    Raises:
        TargetFileError: it cannot be used; says line, field and near names of each fault.
    """
    sheet = Sheet.open(path)
    faults: list[TargetFileError] = []
    kind = _noted(faults, lambda: _kind(sheet))
    fields: dict[str, Callable[[], Any]] = {
        "name": lambda: sheet.text("name", path.stem),
        "timeout": lambda: sheet.number("timeout", 300.0, 0.1, 86_400.0),
        "dry": lambda: _dry(sheet),
        "base_url": lambda: _url(sheet, "base_url"),
        "model": lambda: sheet.text("model", ""),
        "sessions": lambda: sheet.flag("sessions", True),
        "env": lambda: _env(sheet),
        "user": lambda: read_user(sheet),
    }
    shared = {name: _noted(faults, read) for name, read in fields.items()}
    spec: Spec | None = None
    if kind is not None:
        read, own = _OF_KIND[kind]
        spec = _noted(faults, lambda: read(sheet, {"path": path, "kind": kind, **shared}))
        faults += sheet.strange(("kind", *fields, *own))
    if faults or spec is None:
        raise joined(faults)
    return spec


def _noted(faults: list[TargetFileError], read: Callable[[], T]) -> T | None:
    """What `read` gives; None after a fault, which is added to `faults`."""
    try:
        return read()
    except TargetFileError as fault:
        faults.append(fault)
        return None


def _kind(sheet: Sheet) -> str:
    sheet.need("kind", "kind: command")
    return sheet.choice("kind", KINDS, "")


def _dry(sheet: Sheet) -> str:
    found = sheet.value("dry", DRY)
    if found is False:
        return ""
    if not isinstance(found, str) or not found.strip():
        raise sheet.wrong("dry", "is neither a question nor `no`")
    return found


def _url(sheet: Sheet, name: str) -> str:
    found = sheet.text(name)
    if found and web_address(re.sub(r"\{[^{}]*\}", "1", found)) is None:  # whatever is put in
        raise sheet.wrong(name, "is not an address", "Give it as http://host:port/path")
    return found


def _env(sheet: Sheet) -> tuple[str, ...]:
    names = sheet.texts("env")
    for name in names:
        if not _NAME.fullmatch(name):
            todo = "Names only: what has a value here goes to `set`"
            raise sheet.wrong("env", "holds what is no name of a variable", todo)
        if name not in os.environ:
            raise sheet.wrong("env", f"names `{name}`, which is not set here", f"Export {name}")
    return names


def _templates(sheet: Sheet, **fields: Any) -> frozenset[str]:
    """The names in braces of some fields.

    Raises:
        TargetFileError: a word in braces is near to a name; a variable is not set.
    """
    used: set[str] = set()
    for name, value in fields.items():
        found = places(value)
        for one in sorted(found):
            variable = one.removeprefix("env:")
            if variable != one and variable not in os.environ:
                raise sheet.wrong(
                    name, f"names `{variable}`, which is not set here", f"Export {variable}"
                )
        _misspelt(sheet, name, value)
        used |= found
    return frozenset(used)


def _misspelt(sheet: Sheet, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Mapping | list | tuple):
            _misspelt(sheet, name, one)
        elif isinstance(one, str):
            for word in _WORD.findall(one):
                close = difflib.get_close_matches(word, PLACES, 1, 0.75)
                if word not in PLACES and close:
                    raise sheet.wrong(name, f"has {{{word}}}; did you mean {{{close[0]}}}?")


def _fake(sheet: Sheet, shared: dict[str, Any]) -> FakeSpec:
    params = sheet.value("params", {})
    if not isinstance(params, Mapping):
        raise sheet.wrong("params", "is not a list of fields")
    headers = sheet.named_texts("headers")
    return FakeSpec(
        **shared,
        dialect=sheet.choice("dialect", DIALECTS, "chat"),
        headers=headers,
        params=dict(params),
        used=_templates(sheet, headers=headers) | {"messages", "system", "session"},
    )


def _words(sheet: Sheet, name: str) -> tuple[str, ...]:
    if name not in sheet:
        return tuple(sheet.texts(name))
    if not sheet.is_text(name):
        found = sheet.texts(name)
    else:
        try:
            found = tuple(shlex.split(sheet.text(name)))
        except ValueError as error:
            raise sheet.wrong(name, f"cannot be split: {error}".lower()) from error
    if not found:
        raise sheet.wrong(name, "is empty")
    return found


def _command(sheet: Sheet, shared: dict[str, Any]) -> CommandSpec:
    sheet.need("command", 'command: [opencode, run, "{query}"]')
    command, then = _words(sheet, "command"), _words(sheet, "then")
    stdin, files = sheet.text("stdin"), sheet.named_texts("files")
    given, folder = sheet.named_texts("set"), sheet.text("folder", "{folder}")
    for name in given:
        if not _NAME.fullmatch(name):
            raise sheet.wrong("set", f"`{name}` is no name of a variable")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise sheet.wrong("files", f"`{name}` is not inside of the folder")
    used = _templates(
        sheet, command=command, then=then, stdin=stdin, files=files, set=given, folder=folder
    )
    if not {"query", "messages"} & places([command, stdin, files]):
        raise sheet.wrong(
            "command", "never says the {query}", "Put {query} in an argument or in `stdin`"
        )
    codes = sheet.value("codes", [0])
    if not isinstance(codes, list) or not all(type(one) is int for one in codes):
        raise sheet.wrong("codes", "is not a list of whole numbers")
    return CommandSpec(
        **shared,
        command=command,
        then=then,
        stdin=stdin,
        set=given,
        files=files,
        folder=folder,
        answer=read_answer(sheet),
        codes=tuple(codes),
        used=used,
    )


def _http(sheet: Sheet, shared: dict[str, Any]) -> HttpSpec:
    sheet.need("url", "url: http://127.0.0.1:3000/api/chat")
    url, headers = _url(sheet, "url"), sheet.named_texts("headers")
    body, told = sheet.value("body"), sheet.text("answer")
    used = _templates(sheet, url=url, headers=headers, body=body)
    if not used & {"query", "messages"}:
        raise sheet.wrong("body" if body is not None else "url", "never says the {query}")
    session = sheet.text("app_session")
    return HttpSpec(
        **shared,
        url=url,
        method=sheet.choice("method", _METHODS, "POST"),
        headers=headers,
        body=body,
        answer=sheet.checked("answer", steps, told),
        told=told,
        sse=_events(sheet),
        app_session=sheet.checked("app_session", steps, session),
        used=used,
    )


def _events(sheet: Sheet) -> Events | None:
    inner = sheet.inner("sse")
    if inner is None:
        return None
    inner.need("path", "path: choices[0].delta.content")
    told = inner.text("path")
    events = Events(
        path=inner.checked("path", steps, told),
        told=told,
        event=inner.text("event"),
        done=inner.text("done", "[DONE]"),
        last=inner.choice("take", ("join", "last"), "join") == "last",
    )
    inner.done()
    return events


def _python(sheet: Sheet, shared: dict[str, Any]) -> PythonSpec:
    sheet.need("function", "function: my_app:ask")
    function = sheet.text("function")
    module, sign, name = function.rpartition(":")
    if not sign or not module.strip() or not name.isidentifier():
        raise sheet.wrong("function", "is not MODULE:FUNCTION")
    folder = (shared["path"].parent / Path(sheet.text("folder", ".")).expanduser()).resolve()
    if not folder.is_dir():
        raise sheet.wrong("folder", f"is no folder: {folder}")
    if module.endswith(".py") and not (folder / module).is_file():
        raise sheet.wrong("function", f"names a file that is not in {folder}")
    given = sheet.named_texts("set")
    return PythonSpec(
        **shared,
        function=function,
        folder=folder,
        fresh=sheet.flag("fresh", True),
        set=given,
        used=_templates(sheet, set=given) | {"messages", "system", "session"},
    )


_OF_KIND: dict[str, tuple[Callable[[Sheet, dict[str, Any]], Spec], tuple[str, ...]]] = {
    "fake": (_fake, ("dialect", "headers", "params")),
    "command": (
        _command,
        ("command", "then", "stdin", "files", "set", "folder", "answer", "codes"),
    ),
    "http": (_http, ("url", "method", "headers", "body", "answer", "sse", "app_session")),
    "python": (_python, ("function", "folder", "fresh", "set")),
}
"""Reader of each kind and the fields it reads beside the shared ones."""
