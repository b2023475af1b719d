"""The interface that every part of a reward implements.

A part scores a group: it returns one number with a reason for each answer, and the model (see
`proxy.rewards.model.file`) weighs the numbers. A part that cannot score raises `PartAbstained`, and
then the whole group gets no reward: a missing number is never made up.
"""

import importlib
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from ajet_swarm.common.errors import UsageError
from core.events import Event
from proxy.rewards.source import GroupContext, Listener, Part, RequestReport, SourceHealth
from proxy.rewards.text import Reading

log = logging.getLogger(__name__)

ENTRY_POINTS = "ajet_console.reward_parts"
"""Entry point group of other packages' kinds: name of the kind -> its `PartKind`."""

_OWN = (
    "length",
    "format",
    "reference",
    "exact",
    "numeric",
    "diversity",
    "repetition",
    "finished",
    "language",
    "relevance",
    "refusal",
    "code",
    "latency",
    "tools",
    "hook",
    "judge",
)
"""Each is a module of `proxy.rewards.parts` with a `KIND`."""


class PartValue(msgspec.Struct, frozen=True, gc=False):
    """What a part says of one answer."""

    value: float
    """Finite; by convention in [0, 1], higher is better."""
    reason: str = ""
    """One line for a person."""
    notes: tuple[Part, ...] = ()
    """Further numbers that are shown with it, at weight 0."""


PartValues = Sequence[PartValue | None] | None
"""One value an answer, in their order; None for an answer the part does not apply to, or in place
of all when it does not apply to the group. The other weights share its weight there."""


class PartInput(msgspec.Struct, frozen=True, gc=False):
    """What a part may look at."""

    context: GroupContext
    readings: Sequence[Reading]
    """One for each answer of `context.answers`, in their order."""
    stems: tuple[str, ...]
    """Stems of the query's words that carry meaning."""
    recent: Sequence[frozenset[int]] = ()
    """Word trigrams of the winners of the newest groups, newest last, without this group's own.
    Empty unless a part has the attribute `looks_back = True`."""


class PartAbstained(Exception):
    """The part cannot score this group, and so nobody can."""

    def __init__(
        self,
        cause: str,
        traceback: str = "",
        file: str = "",
        line: int = 0,
        late: bool = False,
    ) -> None:
        self.late = late
        """It took longer than its limit."""
        self.cause = cause
        self.traceback = traceback
        self.file = file
        self.line = line
        super().__init__(cause)


class SettingError(UsageError):
    """A setting of a part is wrong."""

    def __init__(
        self, field: str, what: str, todo: str = "", more: Sequence["SettingError"] = ()
    ) -> None:
        self.field = field
        self.more = tuple(more)
        """Further settings of the part that are wrong."""
        super().__init__(what, field, todo)


class GroupPart(Protocol):
    """A part that answers at once, on the loop: < 0.05 ms for four short answers.

    It may have the attribute `files`, the paths it has read: when one changes the part is made
    anew; and `looks_back`, true when it wants `PartInput.recent`.
    """

    def score(self, group: PartInput) -> PartValues:
        """One value an answer.

        Raises:
            PartAbstained: it cannot say.
        """
        ...


class SlowPart(Protocol):
    """A part that waits for something: a process, a server. It may have these attributes too.

    With `learns_version = True` its version may become known by being asked, as that of a model
    the server names; a group then carries the one known after it. Else the one before it.

    While it has `proven = False` it replaces nothing that serves; a change of it is a change of
    health, and is told so. `faulty_setting` is the name of the setting that makes it unwell; its
    place in the file is told then. `spare` are the seconds that a group may need beyond the time
    limit, where it had to begin anew by no fault of its own.
    """

    async def score(self, group: PartInput) -> PartValues:
        """One value an answer; within the time limit of the rewards, after which it is cancelled.

        Raises:
            PartAbstained: it cannot say.
        """
        ...

    async def start(self) -> None:
        """Make ready; returns soon even when getting ready takes longer."""
        ...

    async def close(self) -> None:
        """Give back every process, connection and file."""
        ...

    def health(self) -> SourceHealth:
        """The state now; its `version` names what it scores with besides settings and code."""
        ...

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the loop at every change of health; returns what takes it away."""
        ...


@runtime_checkable
class ObservesRequests(Protocol):
    """A slow part that wants to know of requests before any episode is claimed."""

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """See `RewardSource.request`."""
        ...


class PartEnvironment(msgspec.Struct, frozen=True):
    """What the program lends to the parts that need more than their settings."""

    home: Path | None = None
    """Folder for what a part keeps: logs, caches; None keeps nothing."""
    seconds: float = 30.0
    """Time limit of one group."""
    memory_mb: int = 2048
    """Memory that a process of a part may use."""
    publish: Callable[[Event], object] | None = None
    """Tells the journal and the screens; None where nobody listens."""


@runtime_checkable
class NeedsEnvironment(Protocol):
    """A part that wants to know its surroundings; told once, before `start`."""

    def place(self, around: PartEnvironment) -> None:
        """Take note of them."""
        ...


class Setting(msgspec.Struct, frozen=True):
    """One setting of a kind."""

    type: Literal["number", "int", "flag", "text", "texts", "file", "mapping"]
    """`texts` takes one text too; `file` becomes a Path, relative to the file of the model."""
    default: Any
    """None: it may be left out, and is None then. `...`: it must be given."""
    help: str
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()


AnyPart = GroupPart | SlowPart
PartFactory = Callable[[str, Mapping[str, Any], Path], AnyPart]
"""(name, settings, folder that relative paths start from) -> part; raises `SettingError`."""


class PartKind(msgspec.Struct, frozen=True):
    """A kind of part: how one is made and what can be set."""

    make: PartFactory
    help: str
    """One line."""
    settings: Mapping[str, Setting] = {}
    gate: bool = False
    """Whether it is a gate unless the file says otherwise."""
    slow: bool = False
    """Whether it makes a `SlowPart`."""

    def build(self, name: str, given: Mapping[str, Any], where: Path) -> AnyPart:
        """A part of this kind, its settings checked and those left out filled in.

        Raises:
            SettingError: settings are unknown, missing or wrong; names them all.
        """
        known = ", ".join(self.settings) or "no settings of its own"
        faults = [
            SettingError(field, f"there is no setting `{field}`", f"It has: {known}")
            for field in given
            if field not in self.settings
        ]
        full: dict[str, Any] = {}
        for field, setting in self.settings.items():
            try:
                full[field] = _checked(field, setting, given.get(field), where)
            except SettingError as fault:
                faults.append(fault)
        if faults:
            first, *others = faults
            raise SettingError(first.field, first.what, first.todo, others) from first
        return self.make(name, full, where)


def _checked(field: str, setting: Setting, value: Any, where: Path) -> Any:
    if value is None:
        if setting.default is ...:
            raise SettingError(field, f"`{field}` is missing", setting.help)
        value = setting.default
        if value is None:
            return None
    converted = _CONVERTERS[setting.type](value, where)
    if converted is None:
        raise SettingError(
            field, f"`{field}` cannot be {value!r:.60}", f"It is {_WORDS[setting.type]}"
        )
    if setting.choices and converted not in setting.choices:
        valid = ", ".join(setting.choices)
        raise SettingError(field, f"`{field}` cannot be {value!r:.60}", f"Valid: {valid}")
    if isinstance(converted, int | float) and not setting.least <= converted <= setting.most:
        span = f"{setting.least:g} to {setting.most:g}"
        raise SettingError(field, f"`{field}` cannot be {value!r:.60}", f"It goes from {span}")
    return converted


def _number(value: Any, where: Path) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good and abs(value) < math.inf else None


def _int(value: Any, where: Path) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any, where: Path) -> tuple[str, ...] | None:
    many = [value] if isinstance(value, str) else value
    if not isinstance(many, list | tuple) or not all(isinstance(one, str) for one in many):
        return None
    return tuple(many)


def _file(value: Any, where: Path) -> Path | None:
    return where / Path(value).expanduser() if isinstance(value, str | Path) and value else None


_CONVERTERS: Mapping[str, Callable[[Any, Path], Any]] = {
    "number": _number,
    "int": _int,
    "flag": lambda value, where: value if isinstance(value, bool) else None,
    "text": lambda value, where: value if isinstance(value, str) else None,
    "texts": _texts,
    "file": _file,
    "mapping": lambda value, where: value if isinstance(value, dict) else None,
}

_WORDS = {
    "number": "a number",
    "int": "a whole number",
    "flag": "true or false",
    "text": "a text",
    "texts": "a list of texts",
    "file": "the path of a file or folder",
    "mapping": "a mapping",
}


class _Kinds(Mapping[str, PartKind]):
    """All kinds by name, each imported when it is first asked for; our own names win."""

    def __init__(self) -> None:
        self._known: dict[str, PartKind] = {}
        self._others: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> PartKind:
        """Raises:
        KeyError: there is none of that name.
        UsageError: another package's kind does not load; says why.
        """
        found = self._known.get(name)
        if found is None:
            self._known[name] = found = self._load(name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from _OWN
        yield from (name for name in self._points() if name not in _OWN)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in _OWN or name in self._points()

    def _points(self) -> dict[str, EntryPoint]:
        if self._others is None:
            self._others = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
        return self._others

    def _load(self, name: str) -> PartKind:
        if name in _OWN:
            kind = importlib.import_module(f"proxy.rewards.parts.{name}").KIND
            assert isinstance(kind, PartKind)
            return kind
        point = self._points()[name]
        try:
            kind = point.load()
        except Exception as error:  # another package's code: its fault costs this kind alone
            log.info("the kind %s does not load", name, exc_info=error)
            raise UsageError(
                f"the kind `{name}` does not load: {type(error).__name__}: {error}",
                f"entry point {point.value}",
                "Repair or remove the package that brings it",
            ) from error
        if not isinstance(kind, PartKind):
            raise UsageError(
                f"the kind `{name}` is a {type(kind).__name__}", f"entry point {point.value}",
                "It must be a proxy.rewards.part.PartKind",
            )  # fmt: skip
        return kind


KINDS: Mapping[str, PartKind] = _Kinds()


def has_fixed_rule(kind: str) -> bool:
    """Whether values of this kind lie in 0 to 1 by a fixed rule of this program.

    Those of a hook, of a judge and of another package's kind need not.
    """
    return kind in _OWN and not KINDS[kind].slow


_RENAMED = {
    "Abstains": "PartAbstained",
    "Kind": "PartKind",
    "Looked": "PartInput",
    "Made": "AnyPart",
    "Maker": "PartFactory",
    "Placed": "NeedsEnvironment",
    "Said": "PartValues",
    "SettingsFault": "SettingError",
    "Surroundings": "PartEnvironment",
    "Told": "ObservesRequests",
}
"""Earlier public names -> present names: parts in other packages may still import the former."""


if not TYPE_CHECKING:  # else every misspelt name would pass the type check

    def __getattr__(name: str) -> Any:
        present = _RENAMED.get(name)
        if present is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        message = f"proxy.rewards.part.{name} is now {present}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return globals()[present]
