"""Target files: one record per kind of target, checked before the first question is sent."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest, did_you_mean
from ajet_swarm.common.urls import web_address
from core.runtime.secrets import env_key
from core.settings.yaml_file import joined
from mock.targets.answers import AnswerPath, AnswerRule, Events, JsonPath, RuleOrWord
from mock.targets.fields import (
    Fault,
    Record,
    TargetFields,
    TargetFileError,
    faults_of,
    read_by,
    read_record,
)
from mock.targets.plugins import OWN_KINDS, PLUGINS
from mock.targets.templates import PLACEHOLDERS, placeholders, texts_in

PRESETS = Path(__file__).with_name("presets")
"""Folder of the target files shipped with the program."""
DRY_QUESTION = "Say hello in one short sentence."
"""Question of a dry run when the target file has none."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\{([A-Za-z_]{2,20})\}")
_ALWAYS = frozenset({"messages", "system", "session"})
"""What targets get that send the whole conversation."""


# --- fields -------------------------------------------------------------------------------------


def _dry(fields: TargetFields, name: str) -> str:
    question = fields.value(name)
    if question is False:
        return ""
    if not isinstance(question, str) or not question.strip():
        raise fields.fault(name, "is neither a question nor `no`")
    return question


def _url(fields: TargetFields, name: str) -> str:
    url = fields.text(name)
    if url and web_address(re.sub(r"\{[^{}]*\}", "1", url)) is None:
        raise fields.fault(name, "is not an address", "Give it as http://host:port/path")
    return url


def _env(fields: TargetFields, name: str) -> tuple[str, ...]:
    names = fields.texts(name)
    for variable in names:
        if not _NAME.fullmatch(variable):
            todo = "List names only; put variables with a value in `set`"
            raise fields.fault(name, "contains an invalid variable name", todo)
        if variable not in os.environ:
            problem = f"names `{variable}`, which is not set here"
            raise fields.fault(name, problem, f"Export {variable}")
    return names


def _variables(fields: TargetFields, name: str) -> dict[str, str]:
    variables = fields.named_texts(name)
    for variable in variables:
        if not _NAME.fullmatch(variable):
            raise fields.fault(name, f"`{variable}` is not a valid variable name")
    return variables


def _files(fields: TargetFields, name: str) -> dict[str, str]:
    files = fields.named_texts(name)
    for file in files:
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise fields.fault(name, f"`{file}` is outside the folder")
    return files


def _argv(fields: TargetFields, name: str) -> tuple[str, ...]:
    """Return a command as its arguments; the file gives a list, or one text as in a shell."""
    try:
        text = fields.is_scalar(name)
        argv = tuple(shlex.split(fields.text(name))) if text else fields.texts(name)
    except ValueError as error:
        raise fields.fault(name, f"cannot be split: {error}".lower()) from error
    if not argv:
        raise fields.fault(name, "is empty")
    return argv


def _key_env(fields: TargetFields, name: str) -> str:
    variable = fields.text(name)
    if not variable:
        return ""
    if not _NAME.fullmatch(variable):
        todo = "Put the key in a variable and give its name, never the key itself"
        raise fields.fault(name, "is not a valid variable name", todo)
    try:
        env_key(variable, "the key of the model that plays the user", os.environ)
    except UsageError as error:
        raise fields.fault(name, f"names `{variable}`: {error.what}", error.todo) from error
    return variable


Url = Annotated[str, read_by(_url)]
Argv = Annotated[tuple[str, ...], read_by(_argv)]
Variables = Annotated[dict[str, str], read_by(_variables)]


# --- records ------------------------------------------------------------------------------------


class UserSpec(Record, frozen=True, kw_only=True):
    """The model that plays the user: `user` of a target file. None is a field left out."""

    EXAMPLES: ClassVar = {"url": "url: https://HOST/v1", "model": "model: NAME"}

    url: str = ""
    model: str = ""
    key_env: Annotated[str, read_by(_key_env)] = ""
    """Name of the variable that contains the key."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    turns: Annotated[int, Meta(ge=1, le=100)] | None = None
    tokens: Annotated[int, Meta(ge=16, le=65_536)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    stop: str | None = None

    def check(self) -> Iterator[Fault]:
        parts = web_address(self.url)
        if parts is None or parts.username or parts.query:
            yield "url", "is not an address", "Give it as https://HOST/v1"
        if not self.model.strip():
            yield "model", "is empty", "Give the model's name at that address"
        if self.stop is not None and not 1 <= len(self.stop) <= 100:
            yield "stop", "is empty or longer than 100 characters", ""

    def given(self) -> dict[str, Any]:
        """Return the fields that the file has."""
        values = msgspec.structs.asdict(self)
        return {name: value for name, value in values.items() if value is not None}


class Spec(Record, frozen=True, kw_only=True, tag_field="kind"):
    """Fields common to all kinds of target."""

    TEMPLATES: ClassVar[tuple[str, ...]] = ()
    """Fields with placeholders."""
    ALWAYS: ClassVar[frozenset[str]] = frozenset()
    """Placeholders that count as used."""

    path: Path
    name: str = ""
    """Display name; that of the file by default."""
    timeout: Annotated[float, Meta(ge=0.1, le=86_400)] = 300.0
    """Time limit of one question in seconds."""
    dry: Annotated[str, read_by(_dry)] = DRY_QUESTION
    """Question of the dry run before the first row; empty for no dry run."""
    base_url: Url = ""
    """Address of the model for the application; empty for the address of the run."""
    model: str = ""
    sessions: bool = True
    """Whether each conversation gets its own model address, by which the proxy finds its row."""
    env: Annotated[tuple[str, ...], read_by(_env)] = ()
    """Names of variables passed on from the mock user's environment; values are never shown."""
    user: UserSpec | None = None
    """The model that plays the user."""

    @property
    def label(self) -> str:
        """The target as named on the command line: a preset's name, or a path."""
        return self.path.stem if self.path.parent == PRESETS else str(self.path)

    @property
    def used(self) -> frozenset[str]:
        """Placeholders in its templates."""
        return self.ALWAYS | placeholders([getattr(self, name) for name in self.TEMPLATES])

    def check(self) -> Iterator[Fault]:
        for name in self.TEMPLATES:
            template = getattr(self, name)
            for variable in sorted(placeholders(template)):
                unset = variable.removeprefix("env:")
                if unset != variable and unset not in os.environ:
                    yield name, f"names `{unset}`, which is not set here", f"Export {unset}"
            for word in (word for text in texts_in(template) for word in _WORD.findall(text)):
                similar = closest(word, PLACEHOLDERS, cutoff=0.75)
                if word not in PLACEHOLDERS and similar:
                    yield name, f"contains {{{word}}}", f"Did you mean {{{similar[0]}}}?"


class FakeSpec(Spec, frozen=True, kw_only=True, tag="fake"):
    """The fake vLLM, or any server with the same API."""

    TEMPLATES = ("headers",)
    ALWAYS = _ALWAYS

    dialect: Literal["chat", "responses", "messages"] = "chat"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Additional fields of the request."""


class CommandSpec(Spec, frozen=True, kw_only=True, tag="command"):
    """A program that is started for each question."""

    EXAMPLES: ClassVar = {"command": 'command: [opencode, run, "{query}"]'}
    TEMPLATES = ("command", "then", "stdin", "files", "set", "folder")

    command: Argv = ()
    then: Argv = ()
    """Command of later turns; empty when the program supports only one question."""
    stdin: str = ""
    """Template of its standard input; empty closes it."""
    set: Variables = msgspec.field(default_factory=dict)
    """Environment variable -> template of its value."""
    files: Annotated[dict[str, str], read_by(_files)] = msgspec.field(default_factory=dict)
    """Path -> template of files written to the conversation's folder before the first turn."""
    folder: str = "{folder}"
    """Template of the working directory."""
    answer: RuleOrWord = AnswerRule()
    codes: list[int] = msgspec.field(default_factory=lambda: [0])
    """Exit codes that mean success."""

    def check(self) -> Iterator[Fault]:
        yield from super().check()
        if not {"query", "messages"} & placeholders([self.command, self.stdin, self.files]):
            todo = "Put {query} in an argument or in `stdin`"
            yield "command", "does not contain {query}", todo


class HttpSpec(Spec, frozen=True, kw_only=True, tag="http"):
    """An application with an HTTP API."""

    EXAMPLES: ClassVar = {"url": "url: http://127.0.0.1:3000/api/chat"}
    TEMPLATES = ("url", "headers", "body")

    url: Url = ""
    method: Literal["POST", "GET", "PUT", "PATCH"] = "POST"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: Annotated[Any, read_by(TargetFields.value)] = None
    answer: AnswerPath = JsonPath()
    """Empty for the whole body."""
    sse: Events | None = None
    app_session: AnswerPath = JsonPath()
    """Where its answers contain the application's id of the conversation."""

    def check(self) -> Iterator[Fault]:
        yield from super().check()
        if not self.used & {"query", "messages"}:
            yield "body" if self.body is not None else "url", "does not contain {query}", ""


class PythonSpec(Spec, frozen=True, kw_only=True, tag="python"):
    """A Python function, called in its own process."""

    EXAMPLES: ClassVar = {"function": "function: my_app:ask"}
    TEMPLATES = ("set",)
    ALWAYS = _ALWAYS

    function: str = ""
    """`MODULE:FUNCTION`."""
    folder: str = "."
    fresh: bool = True
    """Whether each question gets a new process."""
    set: Variables = msgspec.field(default_factory=dict)
    """Environment variable -> template of its value."""

    @property
    def works_in(self) -> Path:
        """Working directory, also first on the import path."""
        return (self.path.parent / Path(self.folder).expanduser()).resolve()

    def check(self) -> Iterator[Fault]:
        yield from super().check()
        module, sign, name = self.function.rpartition(":")
        if not sign or not module.strip() or not name.isidentifier():
            yield "function", "is not MODULE:FUNCTION", ""
        if not self.works_in.is_dir():
            yield "folder", f"is not a folder: {self.works_in}", ""
        elif module.endswith(".py") and not (self.works_in / module).is_file():
            yield "function", f"names a file that is not in {self.works_in}", ""


class PluginSpec(Spec, frozen=True, kw_only=True):
    """A target of another package."""

    ALWAYS = _ALWAYS

    plugin: str
    """Its kind."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """As written in the file; the plug-in checks them."""


_KINDS: Mapping[Any, type[Spec]] = {
    spec.__struct_config__.tag: spec for spec in (FakeSpec, CommandSpec, HttpSpec, PythonSpec)
}


# --- files --------------------------------------------------------------------------------------


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


def read_target(path: Path) -> Spec:
    """Parse and check a target file.

    Raises:
        TargetFileError: it is invalid; gives line, field and similar names for each fault.
    """
    faults = faults_of(path)
    fields = TargetFields(
        faults.compose(faults.read(path)), faults, todo="Begin with `kind: command` or another kind"
    )
    kind = ""
    with faults.collect():
        kind = _kind(fields)
    if kind in _KINDS:
        spec = read_record(fields, _KINDS[kind], ["kind"], path=path)
    elif kind:
        spec = read_record(fields, PluginSpec, ["kind"], path=path, plugin=kind)
    else:  # its own fields are unknown
        spec = read_record(fields, Spec, list(fields.entries), path=path)
    if faults.collected:  # the first of each line
        raise joined({fault.line: fault for fault in reversed(faults.collected)}.values())
    return spec if spec.name else msgspec.structs.replace(spec, name=path.stem)


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
