"""Target files: what stands in them, checked before anything is asked."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ajet_swarm.common.text import closest, did_you_mean
from ajet_swarm.common.urls import web_address
from core.settings.yaml_file import Faults, FieldReader, joined
from mock.targets.answer_path import AnswerRule, read_answer
from mock.targets.answer_path import Path as AnswerPath
from mock.targets.spec_fields import TargetFields, TargetFileError, faults_of
from mock.targets.spec_user import read_user
from mock.targets.templates import PLACEHOLDERS, parse_path, placeholders

Kind = Literal["fake", "command", "http", "python"]
Dialect = Literal["chat", "responses", "messages"]
Seconds = Annotated[float, Meta(ge=0.1, le=86_400)]
READY = Path(__file__).with_name("presets")
DRY = "Say hello in one short sentence."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\{([A-Za-z_]{2,20})\}")


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
    answer: AnswerRule
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
    todo = f"It is a YAML file, or one of {', '.join(ready_names())}"
    hint = did_you_mean(told, there, 3, 0.5)
    raise TargetFileError("there is no such target", told, f"{hint} {todo}".strip())


# --- reading ------------------------------------------------------------------------------------


def read_target(path: Path) -> Spec:
    """Return what a target file describes.

    Raises:
        TargetFileError: it cannot be used; names line, field and similar names of each fault.
    """
    faults = faults_of(path)
    root = faults.compose(faults.read(path))
    fields = FieldReader(root, faults, todo="Begin with `kind: command` or another kind")
    readers: dict[str, Callable[[], Any]] = {
        "kind": lambda: _kind(fields),
        "name": lambda: fields.text("name", path.stem),
        "timeout": lambda: fields.get("timeout", Seconds, 300.0),
        "dry": lambda: _dry(fields),
        "base_url": lambda: _url(fields, "base_url"),
        "model": lambda: fields.text("model"),
        "sessions": lambda: fields.get("sessions", bool, True),
        "env": lambda: _env(fields),
        "user": lambda: read_user(fields),
    }
    shared: dict[str, Any] = {**dict.fromkeys(readers), "path": path}
    for name, read in readers.items():
        with faults.collect():
            shared[name] = read()
    spec: Spec | None = None
    if shared["kind"]:
        read_own, own = _OF_KIND[shared["kind"]]
        with faults.collect():
            spec = read_own(fields, shared)
        with faults.collect():
            fields.check_unknown((*readers, *own))
    if faults.collected or spec is None:
        raise _one_a_line(faults)
    return spec


def _one_a_line(faults: Faults[TargetFileError]) -> TargetFileError:
    """Return all faults as one; of several on one line the first."""
    return joined({fault.line: fault for fault in reversed(faults.collected)}.values())


def _kind(fields: TargetFields) -> str:
    fields.require("kind", "kind: command")
    return str(fields.get("kind", Kind))


def _dry(fields: TargetFields) -> str:
    found = fields.value("dry", DRY)
    if found is False:
        return ""
    if not isinstance(found, str) or not found.strip():
        raise fields.fault("dry", "is neither a question nor `no`")
    return found


def _url(fields: TargetFields, name: str) -> str:
    found = fields.text(name)
    if found and web_address(re.sub(r"\{[^{}]*\}", "1", found)) is None:  # whatever is put in
        raise fields.fault(name, "is not an address", "Give it as http://host:port/path")
    return found


def _env(fields: TargetFields) -> tuple[str, ...]:
    names = fields.texts("env")
    for name in names:
        if not _NAME.fullmatch(name):
            todo = "Names only: what has a value here goes to `set`"
            raise fields.fault("env", "holds what is no name of a variable", todo)
        if name not in os.environ:
            raise fields.fault("env", f"names `{name}`, which is not set here", f"Export {name}")
    return names


def _templates(fields: TargetFields, **templates: Any) -> frozenset[str]:
    """The names in braces of some fields.

    Raises:
        TargetFileError: a word in braces is near to a name; a variable is not set.
    """
    used: set[str] = set()
    for name, value in templates.items():
        found = placeholders(value)
        for one in sorted(found):
            variable = one.removeprefix("env:")
            if variable != one and variable not in os.environ:
                raise fields.fault(
                    name, f"names `{variable}`, which is not set here", f"Export {variable}"
                )
        _misspelt(fields, name, value)
        used |= found
    return frozenset(used)


def _misspelt(fields: TargetFields, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Mapping | list | tuple):
            _misspelt(fields, name, one)
        elif isinstance(one, str):
            for word in _WORD.findall(one):
                similar = closest(word, PLACEHOLDERS, cutoff=0.75)
                if word not in PLACEHOLDERS and similar:
                    todo = f"Did you mean {{{similar[0]}}}?"
                    raise fields.fault(name, f"has {{{word}}}", todo)


def _fake(fields: TargetFields, shared: dict[str, Any]) -> FakeSpec:
    params = fields.get("params", dict, {})
    headers = fields.named_texts("headers")
    return FakeSpec(
        **shared,
        dialect=fields.get("dialect", Dialect, "chat"),
        headers=headers,
        params=dict(params),
        used=_templates(fields, headers=headers) | {"messages", "system", "session"},
    )


def _words(fields: TargetFields, name: str) -> tuple[str, ...]:
    if name not in fields:
        return ()
    if not fields.is_scalar(name):
        found = fields.texts(name)
    else:
        try:
            found = tuple(shlex.split(fields.text(name)))
        except ValueError as error:
            raise fields.fault(name, f"cannot be split: {error}".lower()) from error
    if not found:
        raise fields.fault(name, "is empty")
    return found


def _command(fields: TargetFields, shared: dict[str, Any]) -> CommandSpec:
    fields.require("command", 'command: [opencode, run, "{query}"]')
    command, then = _words(fields, "command"), _words(fields, "then")
    stdin, files = fields.text("stdin"), fields.named_texts("files")
    given, folder = fields.named_texts("set"), fields.text("folder", "{folder}")
    for name in given:
        if not _NAME.fullmatch(name):
            raise fields.fault("set", f"`{name}` is no name of a variable")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise fields.fault("files", f"`{name}` is not inside of the folder")
    used = _templates(
        fields, command=command, then=then, stdin=stdin, files=files, set=given, folder=folder
    )
    if not {"query", "messages"} & placeholders([command, stdin, files]):
        raise fields.fault(
            "command", "never says the {query}", "Put {query} in an argument or in `stdin`"
        )
    return CommandSpec(
        **shared,
        command=command,
        then=then,
        stdin=stdin,
        set=given,
        files=files,
        folder=folder,
        answer=read_answer(fields),
        codes=tuple(fields.get("codes", list[int], (0,))),
        used=used,
    )


def _http(fields: TargetFields, shared: dict[str, Any]) -> HttpSpec:
    fields.require("url", "url: http://127.0.0.1:3000/api/chat")
    url, headers = _url(fields, "url"), fields.named_texts("headers")
    body, told = fields.value("body"), fields.text("answer")
    used = _templates(fields, url=url, headers=headers, body=body)
    if not used & {"query", "messages"}:
        raise fields.fault("body" if body is not None else "url", "never says the {query}")
    session = fields.text("app_session")
    return HttpSpec(
        **shared,
        url=url,
        method=fields.get("method", Literal["POST", "GET", "PUT", "PATCH"], "POST"),
        headers=headers,
        body=body,
        answer=fields.checked("answer", parse_path, told),
        told=told,
        sse=_events(fields),
        app_session=fields.checked("app_session", parse_path, session),
        used=used,
    )


def _events(fields: TargetFields) -> Events | None:
    inner = fields.inner("sse")
    if inner is None:
        return None
    inner.require("path", "path: choices[0].delta.content")
    told = inner.text("path")
    events = Events(
        path=inner.checked("path", parse_path, told),
        told=told,
        event=inner.text("event"),
        done=inner.text("done", "[DONE]"),
        last=inner.get("take", Literal["join", "last"]) == "last",
    )
    inner.check_unknown()
    return events


def _python(fields: TargetFields, shared: dict[str, Any]) -> PythonSpec:
    fields.require("function", "function: my_app:ask")
    function = fields.text("function")
    module, sign, name = function.rpartition(":")
    if not sign or not module.strip() or not name.isidentifier():
        raise fields.fault("function", "is not MODULE:FUNCTION")
    folder = (shared["path"].parent / Path(fields.text("folder", ".")).expanduser()).resolve()
    if not folder.is_dir():
        raise fields.fault("folder", f"is no folder: {folder}")
    if module.endswith(".py") and not (folder / module).is_file():
        raise fields.fault("function", f"names a file that is not in {folder}")
    given = fields.named_texts("set")
    return PythonSpec(
        **shared,
        function=function,
        folder=folder,
        fresh=fields.get("fresh", bool, True),
        set=given,
        used=_templates(fields, set=given) | {"messages", "system", "session"},
    )


_OF_KIND: dict[str, tuple[Callable[[TargetFields, dict[str, Any]], Spec], tuple[str, ...]]] = {
    "fake": (_fake, ("dialect", "headers", "params")),
    "command": (
        _command,
        ("command", "then", "stdin", "files", "set", "folder", "answer", "codes"),
    ),
    "http": (_http, ("url", "method", "headers", "body", "answer", "sse", "app_session")),
    "python": (_python, ("function", "folder", "fresh", "set")),
}
"""Reader of each kind and the fields it reads beside the shared ones."""
