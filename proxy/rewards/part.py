"""The interface that every part of a reward implements.

A part scores a group: it returns one number with a reason for each answer, and the model (see
`proxy.rewards.model.file`) weighs the numbers. A part that cannot score raises `PartAbstained`, and
then the whole group gets no reward: no number is ever made up.
"""

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.runtime import SYSTEM, Runtime
from core.events import Event, Part
from core.plugins import REWARD_PARTS, Plugins
from core.whole_file import read_small
from proxy.rewards.source import Abstention, GroupContext, Service
from proxy.rewards.text import Reading

ENTRY_POINTS = REWARD_PARTS
"""Entry point group for kinds in other packages: name of the kind -> its `PartKind`."""

BUILT_IN = {
    "length": "parts.words:LENGTH",
    "format": "parts.format:FORMAT",
    "reference": "parts.reference:REFERENCE",
    "exact": "parts.reference:EXACT",
    "numeric": "parts.reference:NUMERIC",
    "diversity": "parts.words:DIVERSITY",
    "repetition": "parts.words:REPETITION",
    "finished": "parts.basic:FINISHED",
    "language": "parts.words:LANGUAGE",
    "relevance": "parts.words:RELEVANCE",
    "refusal": "parts.refusal:REFUSAL",
    "code": "parts.basic:CODE",
    "latency": "parts.basic:LATENCY",
    "tools": "parts.basic:TOOLS",
    "hook": "hooks.part:HOOK",
    "judge": "judge.part:JUDGE",
}
"""Name of each built-in kind -> module in `proxy.rewards`, and the name of the kind in it."""


class PartValue(msgspec.Struct, frozen=True, gc=False):
    """The value that a part gives one answer."""

    value: float
    """Finite; by convention in [0, 1], higher is better."""
    reason: str = ""
    """One line for the operator."""
    notes: tuple[Part, ...] = ()
    """Further numbers to show with it, at weight 0."""


PartValues = Sequence[PartValue | None] | None
"""One value for each answer, in their order. None for an answer, or in place of all values, means
that the part does not apply to it; the other parts share its weight there."""


class PartInput(msgspec.Struct, frozen=True, gc=False):
    """The input of a part: one group with its texts prepared."""

    context: GroupContext
    readings: Sequence[Reading]
    """One for each answer of `context.answers`, in their order."""
    stems: tuple[str, ...]
    """Stems of the query's words that carry meaning."""
    recent: Sequence[frozenset[int]] = ()
    """Word trigrams of the winners of the newest other groups, newest last. Empty unless a part of
    the model has the attribute `looks_back = True`."""


class PartAbstained(Exception):
    """The part cannot score this group, so the group gets no reward."""

    def __init__(
        self, cause: str, traceback: str = "", file: str = "", line: int = 0, late: bool = False
    ) -> None:
        self.cause = cause
        self._abstention = Abstention("", cause, traceback, file, line, late=late)
        super().__init__(cause)

    def by(self, part: str) -> Abstention:
        """Return the abstention of the part of this name."""
        return msgspec.structs.replace(self._abstention, part=part)


class SettingError(UsageError):
    """A setting of a part is invalid."""

    def __init__(
        self, field: str, what: str, todo: str = "", more: Sequence["SettingError"] = ()
    ) -> None:
        self.field = field
        self.more = tuple(more)
        """Further invalid settings of the same part."""
        super().__init__(what, field, todo)


class GroupPart(Protocol):
    """A part that scores on the event loop without waiting: < 0.05 ms for four short answers.

    Optional attributes: `files`, the paths the part has read (it is rebuilt when one changes, in a
    folder when a Python file does), and `looks_back`, True when the part uses `PartInput.recent`.
    """

    def score(self, group: PartInput) -> PartValues:
        """Return one value for each answer.

        Raises:
            PartAbstained: the part cannot score the group.
        """
        ...


class FunctionPart:
    """A part that scores by a function of the group and the part's settings.

    Args:
        function: Called with the group, and the settings as keyword arguments.
        settings: Checked settings of the part.
        looks_back: Whether the function uses `PartInput.recent`.
    """

    def __init__(
        self,
        function: Callable[..., PartValues],
        settings: Mapping[str, Any],
        looks_back: bool = False,
    ) -> None:
        self.function = function
        self.looks_back = looks_back
        self.score: Callable[[PartInput], PartValues] = functools.partial(function, **settings)


def scored_by(function: Callable[..., PartValues]) -> "PartFactory":
    """Return the factory of parts that score by a function; see `FunctionPart`."""

    def make(name: str, settings: Mapping[str, Any], where: Path) -> FunctionPart:
        return FunctionPart(function, settings)

    functools.update_wrapper(make, function)  # versions cover the module of the function
    return make


def each_by(function: Callable[..., PartValue | None]) -> "PartFactory":
    """Return the factory of parts that score each answer by itself.

    Args:
        function: Called with the `Reading` of an answer, and the settings as keyword arguments;
            returns None where the part does not apply.
    """

    @functools.wraps(function)
    def score(group: PartInput, **settings: Any) -> PartValues:
        return [function(reading, **settings) for reading in group.readings]

    return scored_by(score)


class SlowPart(Service, Protocol):
    """A part that waits for a process or a server.

    Optional attributes, besides those of `GroupPart`:

    - `learns_version = True`: the version may become known only by a request, as that of a model
      the server names. A group then carries the version known after it was scored, else the one
      known before.
    - `proven = False`: the part replaces no part that scores until it is True. A change of it is
      published as a change of health.
    - `faulty_setting`: name of the setting that causes the fault, so that its line can be shown.
    - `extra_seconds`: seconds beyond the time limit that a group may need when it has to be
      scored again without a fault of its own.
    """

    async def score(self, group: PartInput) -> PartValues:
        """Return one value for each answer; cancelled when the time limit of the rewards is over.

        Raises:
            PartAbstained: the part cannot score the group.
        """
        ...


class OwnServer(msgspec.Struct, frozen=True):
    """The server that the policy's answers come from."""

    url: str
    """Base URL, including `/v1`."""
    key: str = ""
    model: str = ""


class HookLimits(msgspec.Struct, frozen=True):
    """Limits of the process of a hook."""

    call_seconds: float = 30.0
    """Limit of one call; then it is cancelled, and the process is killed if that fails."""
    load_seconds: float = 60.0
    """Limit for importing the modules."""
    grace_seconds: float = 1.0
    """Time that a cancelled call has to end by itself."""
    memory_bytes: int = 2 << 30
    """Memory that the process may allocate; 0 for no limit."""
    retry_seconds: float = 10.0
    """Seconds between two attempts to load files that fail to load and do not change."""
    log_bytes: int = 16 << 20
    """Size at which the log of the hooks' output is truncated."""


class PartEnvironment(msgspec.Struct, frozen=True):
    """What the program provides to parts besides their settings."""

    home: Path | None = None
    """Folder for logs and caches of parts; None: nothing is stored."""
    seconds: float = 30.0
    """Time limit of one group in seconds."""
    publish: Callable[[Event], object] | None = None
    """Publishes an event to the journal and the screens; None: there is no bus."""
    runtime: Runtime = SYSTEM
    """The clocks and the chance of the process."""
    own: OwnServer | None = None
    """The server of the policy, if it can be asked directly."""
    hooks: HookLimits = HookLimits()
    """Limits of hooks; those of a call and of the memory are settings."""
    kept: dict[str, Any] = {}
    """What parts keep, by a key of their own, while a saved file replaces them."""


@runtime_checkable
class NeedsEnvironment(Protocol):
    """A part that needs its environment, which is set once, before `start`."""

    def place(self, environment: PartEnvironment) -> None:
        """Store the environment."""
        ...


class Setting(msgspec.Struct, frozen=True):
    """One setting of a kind."""

    type: Literal["number", "int", "flag", "text", "texts", "file", "mapping"]
    """`texts` also accepts a single text; `file` becomes a Path, relative to the model's file."""
    default: Any
    """None: the setting is optional and None by default. `...`: it is required."""
    help: str
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()


AnyPart = GroupPart | SlowPart
PartFactory = Callable[[str, Mapping[str, Any], Path], AnyPart]
"""(name, settings, folder that relative paths start from) -> part; raises `SettingError`."""


class PartKind(msgspec.Struct, frozen=True):
    """A kind of part: its factory and its settings."""

    make: PartFactory
    help: str
    """One line."""
    settings: Mapping[str, Setting] = {}
    gate: bool = False
    """Whether its parts are gates by default."""
    slow: bool = False
    """Whether it makes parts that wait (`SlowPart`)."""
    ascending: tuple[str, str] | None = None
    """Two numbers of the settings, of which the first must be below the second."""
    relative: str = ""
    """What its value depends on besides query, answer and reference; empty for nothing else. Looks
    at the probe set leave such a part out."""

    def build(self, name: str, values: Mapping[str, Any], where: Path) -> AnyPart:
        """Return a part of this kind, with checked settings and defaults for the others.

        Args:
            name: Name of the part.
            values: Its settings as the file has them.
            where: Folder that relative paths start from.

        Raises:
            SettingError: settings are unknown, missing or invalid; reports all of them.
        """
        names = ", ".join(self.settings) or "no settings of its own"
        faults = [
            SettingError(field, f"there is no setting `{field}`", f"It has: {names}")
            for field in values
            if field not in self.settings
        ]
        checked: dict[str, Any] = {}
        for field, setting in self.settings.items():
            try:
                checked[field] = _checked(field, setting, values.get(field), where)
            except SettingError as fault:
                faults.append(fault)
        if faults:
            first, *others = faults
            raise SettingError(first.field, first.what, first.todo, others) from first
        if self.ascending is not None:
            low, high = self.ascending
            if not checked[low] < checked[high]:
                limit = f"`{high}` {checked[high]:g} must be above `{low}` {checked[low]:g}"
                raise SettingError(high, limit)
        return self.make(name, checked, where)


def _checked(field: str, setting: Setting, value: Any, where: Path) -> Any:
    if value is None:
        if setting.default is ...:
            raise SettingError(field, f"`{field}` is missing", setting.help)
        value = setting.default
        if value is None:
            return None
    if isinstance(value, Path) or (setting.type == "texts" and isinstance(value, str)):
        value = str(value) if setting.type == "file" else (value,)
    kind, description = _TYPES[setting.type]
    converted: Any = None
    with contextlib.suppress(msgspec.ValidationError):
        converted = msgspec.convert(value, kind)
    unusable = (None, "") if setting.type == "file" else (None, math.inf, -math.inf)
    if converted in unusable or converted != converted:
        raise SettingError(field, f"`{field}` cannot be {value!r:.60}", f"It is {description}")
    if setting.type == "file":
        return where / Path(converted).expanduser()
    if setting.choices and converted not in setting.choices:
        valid = ", ".join(setting.choices)
        raise SettingError(field, f"`{field}` cannot be {value!r:.60}", f"Valid: {valid}")
    if isinstance(converted, int | float) and not setting.least <= converted <= setting.most:
        limits = f"{setting.least:g} to {setting.most:g}"
        raise SettingError(field, f"`{field}` cannot be {value!r:.60}", f"It goes from {limits}")
    return converted


_TYPES: Mapping[str, tuple[Any, str]] = {
    "number": (float, "a number"),
    "int": (int, "a whole number"),
    "flag": (bool, "true or false"),
    "text": (str, "a text"),
    "texts": (tuple[str, ...], "a list of texts"),
    "file": (str, "the path of a file or folder"),
    "mapping": (dict[str, Any], "a mapping"),
}
"""Type of a setting -> the type that its value must have, and its name."""


def read_text(field: str, file: Path, limit: int = 1 << 20) -> str:
    """Return the text of a file that a setting names.

    Args:
        field: The setting.
        file: Its value.
        limit: Maximum size in bytes.

    Raises:
        SettingError: the file cannot be read, or is not UTF-8 text.
    """
    try:
        return read_small(file, limit).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text"
        if isinstance(error, OSError):
            why = error.strerror or type(error).__name__
        raise SettingError(field, f"{file} cannot be read: {why}", "Correct the path") from error


PLUGINS = Plugins(ENTRY_POINTS, PartKind, BUILT_IN)
"""The kinds of other packages."""


class _Kinds(Mapping[str, PartKind]):
    """All kinds by name, each imported on first use; built-in names take precedence."""

    def __init__(self) -> None:
        self.plugins = PLUGINS

    def __getitem__(self, name: str) -> PartKind:
        """Return a kind.

        Raises:
            KeyError: there is no kind of that name.
            UsageError: the kind of another package does not load; gives the reason.
        """
        if name not in BUILT_IN:
            return self.plugins.load(name)
        module, _, constant = BUILT_IN[name].partition(":")
        kind = getattr(importlib.import_module(f"proxy.rewards.{module}"), constant)
        assert isinstance(kind, PartKind)
        return kind

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from self.plugins.names()

    def __len__(self) -> int:
        return len(BUILT_IN) + len(self.plugins.names())

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in self.plugins.names()


KINDS: Mapping[str, PartKind] = _Kinds()


def has_fixed_rule(kind: str) -> bool:
    """Return whether a fixed rule of this program keeps values of this kind within 0 to 1.

    Values of a hook, a judge or another package's kind may lie outside.
    """
    return kind in BUILT_IN and not KINDS[kind].slow
