"""Reading the file of the rewards, `rewards.yaml`: every fault by file, line and field."""

import contextlib
import difflib
import functools
import re
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ajet_swarm.common.errors import UsageError
from proxy.rewards.model.spec import RECENT, Model, PartSpec
from proxy.rewards.part import KINDS, AnyPart, PartKind, SettingError

NAME = "rewards.yaml"
"""What the file is called in the home."""
LARGEST = 1 << 20
"""Bytes of a file that are read."""
LARGEST_VALUE = 20_000
"""Entries of one setting, aliases written out."""
MOST = 64
"""Parts of a model."""
SHOWN = 8
"""Faults that are said one by one where there is one line for them."""

DEFAULT_TEXT = """\
# What makes a reward: the product of the gates, times the sum of weight x part.
# Saved changes are loaded at once; the next group is scored with them. See docs/guide/rewards.md.
parts:
  degeneration: {kind: repetition, gate: true, shut: 0.6}
  finished: {gate: true}
  refusal: {gate: true}
  # A share is taken first where the part applies; the weights divide what is left.
  reference: {share: 0.8, sums: true}
  tools: {share: 0.9, declared: true}
  code: {share: 0.4}
  length: {weight: 0.4, by_query: true}
  relevance: {weight: 0.4}
  diversity: {weight: 0.2, by_query: true}
# Winners that parts which look back compare with.
recent: 50
"""
"""The built-in model, as a file that can be edited."""

_PART_NAME = re.compile(r"[A-Za-z][\w.-]{0,39}")
_COMMON = ("kind", "weight", "share", "gate", "enabled")
_TOP = ("parts", "recent")
HEAVIEST = 1e6


class ModelFault(UsageError):
    """The file of the rewards is wrong, in one place or in several."""

    def __init__(self, file: str, line: int, field: str, what: str, todo: str = "") -> None:
        self.more: tuple[ModelFault, ...] = ()
        """The other faults, by line; this one is the first."""
        self.file = file
        self.line = line
        """1-based; 0 when there is no such place."""
        self.field = field
        at = f"{file}:{line}" if line else file
        super().__init__(what, f"{at}: {field}" if field else at, todo)

    def __str__(self) -> str:
        """One line a fault, each with file, line and field."""
        return "\n".join((super().__str__(), *(str(one) for one in self.more)))

    @property
    def cause(self) -> str:
        """All but the file and the first line, in one line for a person."""
        if not self.more:
            return self._said
        shown = [self._said, *(f"line {one.line}: {one._said}" for one in self.more[: SHOWN - 1])]
        rest = len(self.more) + 1 - len(shown)
        told = " | ".join([*shown, f"{rest} more"] if rest else shown)
        return f"{len(self.more) + 1} faults: {told}"

    @property
    def _said(self) -> str:
        text = f"{self.field}: {self.what}" if self.field else self.what
        return f"{text}. {self.todo}" if self.todo else text

    @property
    def all(self) -> tuple["ModelFault", ...]:
        """This one and the others."""
        return (self, *self.more)


def together(faults: Iterable[ModelFault]) -> ModelFault:
    """All of them as one, the first in the file first; there is at least one."""
    first, *more = sorted(
        (one for fault in faults for one in fault.all), key=lambda fault: fault.line
    )
    for one in (first, *more):
        one.more = ()
    first.more = tuple(more)
    return first


@functools.cache
def default_model() -> Model:
    """The built-in model."""
    return parse(DEFAULT_TEXT, None)


def load(file: Path) -> Model:
    """The model of a file; its parts are not made yet.

    Raises:
        ModelFault: it cannot be read or is wrong; names line and field.
    """
    return parse(read(file), file)


def read(file: Path) -> str:
    """The text of a file, its line ends as they are.

    Raises:
        ModelFault: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ModelFault(str(file), 0, "", "the file is larger than 1 MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ModelFault(str(file), 0, "", f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ModelFault(str(file), line, "", "this is not UTF-8", "Save it as UTF-8") from error


def parse(text: str, file: Path | None) -> Model:
    """The model that `text` describes.

    Raises:
        ModelFault: it describes none.
    """
    return _Reader(str(file or "the built-in rewards")).model(text, file)


def make(spec: PartSpec, model: Model, folder: Path) -> AnyPart:
    """The part itself, relative paths starting from `folder`.

    Raises:
        ModelFault: settings are wrong; names them all.
    """
    try:
        return KINDS[spec.kind].build(spec.name, spec.settings, folder)
    except SettingError as fault:
        raise together(_of_setting(spec, model, one) for one in (fault, *fault.more)) from fault


def _of_setting(spec: PartSpec, model: Model, fault: SettingError) -> ModelFault:
    field = f"parts.{spec.name}" + (f".{fault.field}" if fault.field else "")
    line = spec.lines.get(fault.field, spec.line)
    near = near_to(fault.field, (*_COMMON, *KINDS[spec.kind].settings))
    unknown = fault.field not in KINDS[spec.kind].settings
    todo = f"{near} {fault.todo}".strip() if unknown else fault.todo
    return ModelFault(str(model.file or ""), line, field, fault.what, todo)


def compose(text: str) -> Any:
    """The tree of nodes of `text`, with their places; None for an empty text."""
    return yaml.compose(text, Loader=yaml.SafeLoader)


def pairs(node: Any) -> list[tuple[Any, Any]]:
    """Key and value nodes of a mapping, in order; none for anything else."""
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _of_parts(model: Model) -> Iterator[ModelFault]:
    """The faults of the settings of a model that is not whole; files stay as they are."""
    if model.file is None:
        return
    for spec in model.active:
        try:
            make(spec, model, model.file.parent)
        except ModelFault as fault:
            yield fault


class _Reader:
    """One reading of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._faults: list[ModelFault] = []

    def model(self, text: str, file: Path | None) -> Model:
        root = self._compose(text)
        if root is None:
            raise self._fault(0, "", "the file is empty", "It needs `parts:`")
        fields = self._fields(root, "", _TOP)
        if "parts" not in fields:
            faults = self._faults or [
                self._fault(1, "parts", "there are no parts", "It needs `parts:`")
            ]
            raise together(faults)
        parts_node = fields["parts"][1]
        named = self._fields(parts_node, "parts", None)
        if len(named) > MOST:
            raise self._fault(self._line(parts_node), "parts", f"there are more than {MOST} parts")
        parts = []
        for name, nodes in named.items():
            with self._noting():
                parts.append(self._part(name, *nodes))
        recent = float(RECENT)
        if "recent" in fields:
            with self._noting():
                recent = self._number(fields["recent"], "recent", 0, 1000, whole=True)
        model = Model(tuple(parts), int(recent), file)
        if self._faults:
            raise together([*self._faults, *_of_parts(model)])
        if not any(part.counts for part in parts):
            raise self._fault(
                self._line(parts_node), "parts", "no part that is on has a weight",
                "Give one `weight: 1`: gates alone make no reward",
            )  # fmt: skip
        return model

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep a fault of this place, and go on with the next."""
        try:
            yield
        except ModelFault as fault:
            self._faults.append(fault)

    def _part(self, name: str, key: Any, node: Any) -> PartSpec:
        where, line = f"parts.{name}", self._line(key)
        if not _PART_NAME.fullmatch(name):
            raise self._fault(
                line, where[:60], "this is no name of a part",
                "A letter, then letters, digits, dot, _ or -; at most 40",
            )  # fmt: skip
        empty = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
        fields = {} if empty else self._fields(node, where, None)
        kind = name
        if "kind" in fields:
            kind = str(self._plain(fields["kind"][1], f"{where}.kind"))
            line = self._line(fields["kind"][0])
        found = self._kind(kind, line, where, "kind" in fields)
        common: dict[str, Any] = {"gate": found.gate}
        for field, (low, high) in {"weight": (-HEAVIEST, HEAVIEST), "share": (0.0, 1.0)}.items():
            if field in fields:
                with self._noting():
                    common[field] = self._number(fields[field], f"{where}.{field}", low, high)
        if "weight" in common and "share" in common:
            raise self._fault(
                self._line(fields["share"][0]), f"{where}.share", "a part has a weight or a share"
            )
        for field in ("gate", "enabled"):
            if field in fields:
                with self._noting():
                    common[field] = self._flag(fields[field], f"{where}.{field}")
        known = (*_COMMON, *found.settings)
        settings: dict[str, Any] = {}
        for field, (at, value) in fields.items():
            if field not in _COMMON:
                with self._noting():
                    if field not in known:
                        raise self._unknown(at, f"{where}.{field}", field, known)
                    settings[field] = self._plain(value, f"{where}.{field}", at)
        lines = {field: self._line(at) for field, (at, _) in fields.items() if field in settings}
        return PartSpec(name, kind, settings=settings, line=self._line(key), lines=lines, **common)

    def _kind(self, kind: str, line: int, where: str, said: bool) -> PartKind:
        if kind not in KINDS:
            near = near_to(kind, KINDS)
            todo = near if said else f"{near} Or give its `kind`.".strip()
            known = f"Known: {', '.join(KINDS)}"
            field = f"{where}.kind" if said else where
            raise self._fault(line, field, f"there is no kind `{kind:.40}`", f"{todo} {known}")
        try:
            return KINDS[kind]
        except UsageError as error:
            raise self._fault(line, where, error.what, error.todo) from error

    def _fields(
        self, node: Any, where: str, known: Iterable[str] | None
    ) -> dict[str, tuple[Any, Any]]:
        """Name -> nodes of a mapping's fields."""
        if not isinstance(node, yaml.MappingNode):
            raise self._fault(self._line(node), where, "this must be `name: value` lines")
        fields: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            field = f"{where}.{name}" if where else name
            with self._noting():
                if name in fields:
                    raise self._fault(self._line(key), field, "this stands here twice")
                if known is not None and name not in known:
                    raise self._unknown(key, field, name, known)
                fields[name] = (key, value)
        return fields

    def _unknown(self, node: Any, field: str, name: str, known: Iterable[str]) -> ModelFault:
        todo = f"{near_to(name, known)} Known: {', '.join(known)}".strip()
        return self._fault(self._line(node), field[:80], f"there is no setting `{name:.40}`", todo)

    def _number(
        self, pair: tuple[Any, Any], field: str, low: float, high: float, whole: bool = False
    ) -> float:
        value = self._plain(pair[1], field)
        good = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not good or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            raise self._fault(
                self._line(pair[0]), field, f"it cannot be {value!r:.40}",
                f"It is {what} from {low:g} to {high:g}",
            )  # fmt: skip
        return float(value)

    def _flag(self, pair: tuple[Any, Any], field: str) -> bool:
        value = self._plain(pair[1], field)
        if not isinstance(value, bool):
            raise self._fault(
                self._line(pair[0]), field, f"it cannot be {value!r:.40}", "It is true or false"
            )
        return value

    def _compose(self, text: str) -> Any:
        try:
            return compose(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 0
            what = f"this is not YAML: {error.problem or error.context}"
            raise self._fault(line, "", what, "Mind the indentation and quote texts") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise self._fault(0, "", f"this is not YAML: {str(error)[:200]}") from error

    def _plain(self, node: Any, field: str, at: Any = None) -> Any:
        """The value of a node; its key is where it stands, as an alias stands elsewhere."""
        line = self._line(node if at is None else at)
        loader = yaml.SafeLoader("")
        try:
            value = loader.construct_document(node)
            if not _plain(value):
                raise self._fault(line, field, "this is no text, number, list, mapping")
            return value
        except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
            raise self._fault(line, field, f"this cannot be read: {str(error)[:200]}") from error
        finally:
            loader.dispose()

    def _line(self, node: Any) -> int:
        return int(node.start_mark.line) + 1

    def _fault(self, line: int, field: str, what: str, todo: str = "") -> ModelFault:
        return ModelFault(self._file, line, field, what, todo)


def _plain(value: Any) -> bool:
    """Whether `value` is what JSON can say, and no larger than a person writes it."""
    waiting, seen = [value], 0
    while waiting:
        one = waiting.pop()
        seen += 1
        if isinstance(one, dict):
            if not all(isinstance(key, str) for key in one):
                return False
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif not (one is None or isinstance(one, str | bool | int | float)):
            return False
        if seen + len(waiting) > LARGEST_VALUE:
            return False
    return True


def near_to(name: Hashable, known: Iterable[str]) -> str:
    """`Did you mean ...?`, when something known is near; else nothing."""
    found = difflib.get_close_matches(str(name), list(known), 1, 0.6)
    return f"Did you mean `{found[0]}`?" if found else ""
