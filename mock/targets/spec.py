"""Reader of target files: every field is checked before the first question is sent."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest, did_you_mean
from ajet_swarm.common.urls import web_address
from core.settings.yaml_file import Faults, FieldReader, joined
from mock.targets.answer_path import AnswerRule, read_answer
from mock.targets.answer_path import Path as AnswerPath
from mock.targets.plugins import OWN_KINDS, PLUGINS
from mock.targets.spec_fields import TargetFields, TargetFileError, faults_of
from mock.targets.spec_user import read_user
from mock.targets.templates import PLACEHOLDERS, parse_path, placeholders

Dialect = Literal["chat", "responses", "messages"]
Seconds = Annotated[float, Meta(ge=0.1, le=86_400)]
PRESETS = Path(__file__).with_name("presets")
"""Folder of the target files shipped with the program."""
DRY_QUESTION = "Say hello in one short sentence."
"""Question of a dry run when the target file has none."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\{([A-Za-z_]{2,20})\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Fields common to all kinds of target."""

    path: Path
    name: str
    kind: str
    timeout: float
    """Time limit of one question in seconds."""
    dry: str
    """Question of the dry run before the first row; empty for no dry run."""
    base_url: str
    """Address of the model for the application; empty for the address of the run."""
    model: str
    sessions: bool
    """Whether each conversation gets its own model address, by which the proxy finds its row."""
    env: tuple[str, ...]
    """Names of variables passed on from the mock user's environment; values are never shown."""
    used: frozenset[str] = frozenset()
    """Placeholders in its templates."""
    user: Mapping[str, Any] = field(default_factory=dict)
    """The model that plays the user, as written in the file; empty without one."""

    @property
    def label(self) -> str:
        """The target as named on the command line: a preset's name, or a path."""
        return self.path.stem if self.path.parent == PRESETS else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSpec(Spec):
    """The fake vLLM, or any server with the same API."""

    dialect: str
    headers: Mapping[str, str]
    params: Mapping[str, Any]
    """Additional fields of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """A program that is started for each question."""

    command: tuple[str, ...]
    then: tuple[str, ...]
    """Command of later turns; empty when the program supports only one question."""
    stdin: str
    """Template of its standard input; empty closes it."""
    set: Mapping[str, str]
    """Environment variable -> template of its value."""
    files: Mapping[str, str]
    """Path -> template of files written to the conversation's folder before the first turn."""
    folder: str
    """Template of the working directory."""
    answer: AnswerRule
    codes: tuple[int, ...] = (0,)
    """Exit codes that mean success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Rules for reading a stream of server-sent events."""

    path: AnswerPath
    """Where each event contains text."""
    path_text: str
    """The path as written in the file."""
    event: str = ""
    """Read only events of this name; empty reads all."""
    done: str = "[DONE]"
    """Data or name of the event that ends the stream."""
    last: bool = False
    """Use the last text; otherwise all texts are joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSpec(Spec):
    """An application with an HTTP API."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: Any
    answer: AnswerPath
    answer_text: str
    """`answer` as written in the file; empty for the whole body."""
    sse: Events | None
    app_session: AnswerPath
    """Where its answers contain the application's id of the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSpec(Spec):
    """A Python function, called in its own process."""

    function: str
    """`MODULE:FUNCTION`."""
    folder: Path
    """Working directory, also first on the import path."""
    fresh: bool
    """Whether each question gets a new process."""
    set: Mapping[str, str] = field(default_factory=dict)
    """Environment variable -> template of its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec(Spec):
    """A target of another package."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """As written in the file; the plug-in checks them."""


# --- search -------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """Return the names of the targets shipped with the program."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def find_target(name: str) -> Path:
    """Return the file of a target, given as a path or as a preset's name.

    Raises:
        TargetFileError: it does not exist; the error lists similar names.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    presets = preset_names()
    if name in presets:
        return PRESETS / f"{name}.yaml"
    candidates = [*presets, *map(str, Path().glob("*.yaml"))]
    todo = f"Give a YAML file, or one of {', '.join(presets)}"
    hint = did_you_mean(name, candidates, 3, 0.5)
    raise TargetFileError("there is no such target", name, f"{hint} {todo}".strip())


# --- reading ------------------------------------------------------------------------------------


def read_target(path: Path) -> Spec:
    """Parse and check a target file.

    Raises:
        TargetFileError: it is invalid; gives line, field and similar names for each fault.
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
        read_own, own = _OF_KIND.get(shared["kind"], (_plugin, ("options",)))
        with faults.collect():
            spec = read_own(fields, shared)
        with faults.collect():
            fields.check_unknown((*readers, *own))
    if faults.collected or spec is None:
        raise _first_of_each_line(faults)
    return spec


def _first_of_each_line(faults: Faults[TargetFileError]) -> TargetFileError:
    """Return the first fault of each line, joined in one error."""
    return joined({fault.line: fault for fault in reversed(faults.collected)}.values())


def _kind(fields: TargetFields) -> str:
    fields.require("kind", "kind: command")
    literal: Any = Literal  # its values are known only now
    kind = str(fields.get("kind", literal[*OWN_KINDS, *PLUGINS.names()]))
    if kind not in OWN_KINDS:
        try:
            PLUGINS.load(kind)
        except UsageError as error:
            raise fields.fault("kind", f"cannot be used: {error.what}", error.todo) from error
    return kind


def _dry(fields: TargetFields) -> str:
    question = fields.value("dry", DRY_QUESTION)
    if question is False:
        return ""
    if not isinstance(question, str) or not question.strip():
        raise fields.fault("dry", "is neither a question nor `no`")
    return question


def _url(fields: TargetFields, name: str) -> str:
    url = fields.text(name)
    without_placeholders = re.sub(r"\{[^{}]*\}", "1", url)
    if url and web_address(without_placeholders) is None:
        raise fields.fault(name, "is not an address", "Give it as http://host:port/path")
    return url


def _env(fields: TargetFields) -> tuple[str, ...]:
    names = fields.texts("env")
    for name in names:
        if not _NAME.fullmatch(name):
            todo = "List names only; put variables with a value in `set`"
            raise fields.fault("env", "contains an invalid variable name", todo)
        if name not in os.environ:
            raise fields.fault("env", f"names `{name}`, which is not set here", f"Export {name}")
    return names


def _templates(fields: TargetFields, **templates: Any) -> frozenset[str]:
    """Return the placeholders in some fields.

    Args:
        fields: The target file.
        templates: Field name -> its template: a text, list or mapping.

    Raises:
        TargetFileError: a placeholder is misspelt, or a variable is not set.
    """
    used: set[str] = set()
    for name, value in templates.items():
        names = placeholders(value)
        for placeholder in sorted(names):
            variable = placeholder.removeprefix("env:")
            if variable != placeholder and variable not in os.environ:
                raise fields.fault(
                    name, f"names `{variable}`, which is not set here", f"Export {variable}"
                )
        _check_spelling(fields, name, value)
        used |= names
    return frozenset(used)


def _check_spelling(fields: TargetFields, name: str, value: Any) -> None:
    """Raise a fault for a word in braces that resembles a placeholder."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Mapping | list | tuple):
            _check_spelling(fields, name, item)
        elif isinstance(item, str):
            for word in _WORD.findall(item):
                similar = closest(word, PLACEHOLDERS, cutoff=0.75)
                if word not in PLACEHOLDERS and similar:
                    todo = f"Did you mean {{{similar[0]}}}?"
                    raise fields.fault(name, f"contains {{{word}}}", todo)


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


def _argv(fields: TargetFields, name: str) -> tuple[str, ...]:
    """Return a command as its arguments; the file gives a list, or one text as in a shell."""
    if name not in fields:
        return ()
    if not fields.is_scalar(name):
        argv = fields.texts(name)
    else:
        try:
            argv = tuple(shlex.split(fields.text(name)))
        except ValueError as error:
            raise fields.fault(name, f"cannot be split: {error}".lower()) from error
    if not argv:
        raise fields.fault(name, "is empty")
    return argv


def _command(fields: TargetFields, shared: dict[str, Any]) -> CommandSpec:
    fields.require("command", 'command: [opencode, run, "{query}"]')
    command, then = _argv(fields, "command"), _argv(fields, "then")
    stdin, files = fields.text("stdin"), fields.named_texts("files")
    variables, folder = fields.named_texts("set"), fields.text("folder", "{folder}")
    for name in variables:
        if not _NAME.fullmatch(name):
            raise fields.fault("set", f"`{name}` is not a valid variable name")
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise fields.fault("files", f"`{name}` is outside the folder")
    used = _templates(
        fields, command=command, then=then, stdin=stdin, files=files, set=variables, folder=folder
    )
    if not {"query", "messages"} & placeholders([command, stdin, files]):
        raise fields.fault(
            "command", "does not contain {query}", "Put {query} in an argument or in `stdin`"
        )
    return CommandSpec(
        **shared,
        command=command,
        then=then,
        stdin=stdin,
        set=variables,
        files=files,
        folder=folder,
        answer=read_answer(fields),
        codes=tuple(fields.get("codes", list[int], (0,))),
        used=used,
    )


def _http(fields: TargetFields, shared: dict[str, Any]) -> HttpSpec:
    fields.require("url", "url: http://127.0.0.1:3000/api/chat")
    url, headers = _url(fields, "url"), fields.named_texts("headers")
    body, answer = fields.value("body"), fields.text("answer")
    used = _templates(fields, url=url, headers=headers, body=body)
    if not used & {"query", "messages"}:
        raise fields.fault("body" if body is not None else "url", "does not contain {query}")
    session = fields.text("app_session")
    return HttpSpec(
        **shared,
        url=url,
        method=fields.get("method", Literal["POST", "GET", "PUT", "PATCH"], "POST"),
        headers=headers,
        body=body,
        answer=fields.checked("answer", parse_path, answer),
        answer_text=answer,
        sse=_events(fields),
        app_session=fields.checked("app_session", parse_path, session),
        used=used,
    )


def _events(fields: TargetFields) -> Events | None:
    inner = fields.inner("sse")
    if inner is None:
        return None
    inner.require("path", "path: choices[0].delta.content")
    path = inner.text("path")
    events = Events(
        path=inner.checked("path", parse_path, path),
        path_text=path,
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
        raise fields.fault("folder", f"is not a folder: {folder}")
    if module.endswith(".py") and not (folder / module).is_file():
        raise fields.fault("function", f"names a file that is not in {folder}")
    variables = fields.named_texts("set")
    return PythonSpec(
        **shared,
        function=function,
        folder=folder,
        fresh=fields.get("fresh", bool, True),
        set=variables,
        used=_templates(fields, set=variables) | {"messages", "system", "session"},
    )


def _plugin(fields: TargetFields, shared: dict[str, Any]) -> PluginSpec:
    return PluginSpec(
        **shared,
        options=fields.get("options", dict[str, Any], {}),
        used=frozenset({"messages", "system", "session"}),
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
"""Kind -> its reader and the fields that the reader uses besides the common ones."""
