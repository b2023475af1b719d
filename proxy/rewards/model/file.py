"""Reader of the rewards file, `rewards.yaml`: every fault has its file, line and field."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from core.settings.yaml_file import Faults, FieldReader, FileFault, Text, joined
from proxy.rewards.model.spec import RECENT, PartSpec, RewardModel
from proxy.rewards.part import KINDS, AnyPart, PartKind, SettingError

NAME = "rewards.yaml"
"""Name of the file in the home."""
MAX_ENTRIES = 20_000
"""Maximum number of entries of one setting, aliases expanded."""
MAX_PARTS = 64
"""Maximum number of parts of a model."""
MAX_LISTED = 8
"""Maximum number of faults that a one-line cause lists; the others are counted."""

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
_MAX_WEIGHT = 1e6
_COMMON: dict[str, Any] = {
    "kind": Text,
    "weight": Annotated[float, Meta(ge=-_MAX_WEIGHT, le=_MAX_WEIGHT)],
    "share": Annotated[float, Meta(ge=0, le=1)],
    "gate": bool,
    "enabled": bool,
}
"""Fields of every part, with their types; `kind` is read first."""
_TOP = {"parts": dict, "recent": Annotated[int, Meta(ge=0, le=1000)]}


class ModelFault(FileFault):
    """One fault of a rewards file, with its other faults as `more`.

    Attributes:
        file: Path of the file, or another name for its text.
        field: Dotted path of the field; empty for the file as a whole.
    """

    more: tuple["ModelFault", ...]

    def __init__(self, file: str, line: int, field: str, what: str, todo: str = "") -> None:
        self.file = file
        self.field = field
        at = f"{file}:{line}" if line else file
        super().__init__(what, f"{at}: {field}" if field else at, todo, line)

    @property
    def cause(self) -> str:
        """All faults on one line, without the file and the first line number."""
        if not self.more:
            return self._short
        shown = [
            self._short,
            *(f"line {fault.line}: {fault._short}" for fault in self.more[: MAX_LISTED - 1]),
        ]
        rest = len(self.more) + 1 - len(shown)
        listed = " | ".join([*shown, f"{rest} more"] if rest else shown)
        return f"{len(self.more) + 1} faults: {listed}"

    @property
    def _short(self) -> str:
        text = f"{self.field}: {self.what}" if self.field else self.what
        return f"{text}. {self.todo}" if self.todo else text


@functools.cache
def default_model() -> RewardModel:
    """Return the built-in model."""
    return parse(DEFAULT_TEXT, None)


def load(file: Path) -> RewardModel:
    """Return the model of a file; its parts are not created yet.

    Raises:
        ModelFault: The file cannot be read or is invalid; names line and field.
    """
    return parse(read(file), file)


def read(file: Path) -> str:
    """Return the text of a file, its line ends as they are.

    Raises:
        ModelFault: The file cannot be read.
    """
    return _faults_of(str(file)).read(file)


def parse(text: str, file: Path | None) -> RewardModel:
    """Return the model that `text` describes.

    Raises:
        ModelFault: The text is not a valid model; has all its faults.
    """
    return _ModelReader(str(file or "the built-in rewards")).model(text, file)


def make(spec: PartSpec, model: RewardModel, folder: Path) -> AnyPart:
    """Create a part; relative paths of its settings start from `folder`.

    Raises:
        ModelFault: Settings are invalid; names all of them.
    """
    try:
        return KINDS[spec.kind].build(spec.name, spec.settings, folder)
    except SettingError as fault:
        faults = (_setting_fault(spec, model, wrong) for wrong in (fault, *fault.more))
        raise joined(faults) from fault


def _setting_fault(spec: PartSpec, model: RewardModel, fault: SettingError) -> ModelFault:
    field = f"parts.{spec.name}" + (f".{fault.field}" if fault.field else "")
    line = spec.lines.get(fault.field, spec.line)
    todo = fault.todo
    if fault.field not in (known := KINDS[spec.kind].settings):
        todo = f"{did_you_mean(fault.field, (*_COMMON, *known))} {todo}".strip()
    return ModelFault(str(model.file or ""), line, field, fault.what, todo)


def _part_faults(model: RewardModel) -> Iterator[ModelFault]:
    """Yield the faults of the settings of the parts that could be read."""
    if model.file is None:
        return
    for spec in model.active:
        try:
            make(spec, model, model.file.parent)
        except ModelFault as fault:
            yield fault


def _faults_of(file: str) -> Faults[ModelFault]:
    def fault(line: int, field: str, problem: str, todo: str) -> ModelFault:
        return ModelFault(file, line, field, f"{'it' if field else 'the file'} {problem}", todo)

    return Faults(ModelFault, fault)


class _ModelReader:
    """Reader of one rewards file."""

    def __init__(self, file: str) -> None:
        self._faults = _faults_of(file)

    def model(self, text: str, file: Path | None) -> RewardModel:
        root = self._faults.compose(text)
        if root is None:
            raise self._faults.fault(0, "", "is empty", "It needs `parts:`")
        top = FieldReader(root, self._faults)
        with self._faults.collect():
            top.check_unknown(_TOP)
        parts_reader = top.inner("parts")
        if parts_reader is None:
            missing = self._faults.fault(1, "parts", "is missing: there are no parts")
            raise joined(self._faults.collected or [missing])
        if len(parts_reader.entries) > MAX_PARTS:
            raise self._faults.fault(parts_reader.line, "parts", f"has more than {MAX_PARTS} parts")
        parts = []
        for name in parts_reader.entries:
            with self._faults.collect():
                parts.append(self._part(parts_reader, name))
        recent = RECENT
        with self._faults.collect():
            recent = top.get("recent", _TOP["recent"], RECENT)
        model = RewardModel(tuple(parts), recent, file)
        if self._faults.collected:
            raise joined([*self._faults.collected, *_part_faults(model)])
        if not any(part.counts for part in parts):
            raise self._faults.fault(
                parts_reader.line, "parts", "has no effect: no part that is on has a weight",
                "Give one `weight: 1`: gates alone make no reward",
            )  # fmt: skip
        return model

    def _part(self, parts: FieldReader[ModelFault], name: str) -> PartSpec:
        entry = parts.entries[name]
        if not _PART_NAME.fullmatch(name):
            raise parts.fault(
                name, "is not the name of a part",
                "A letter, then letters, digits, dot, _ or -; at most 40",
            )  # fmt: skip
        reader = parts.inner(name)
        assert reader is not None
        kind_name = reader.text("kind", name)
        kind = self._kind(kind_name, *((reader, "kind") if "kind" in reader else (parts, name)))
        common: dict[str, Any] = {"gate": kind.gate}
        settings: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for field, place in reader.entries.items():
            with self._faults.collect():
                if field in _COMMON:
                    common[field] = reader.get(field, _COMMON[field])
                elif field in kind.settings:
                    lines[field] = place.line
                    settings[field] = self._json_value(reader, field)
                else:
                    raise reader.unknown(field, (*_COMMON, *kind.settings))
        if {"weight", "share"} <= common.keys():
            raise reader.fault("share", "excludes `weight`: a part has a weight or a share")
        common["kind"] = kind_name
        return PartSpec(name, settings=settings, line=entry.line, lines=lines, **common)

    def _kind(self, kind: str, reader: FieldReader[ModelFault], field: str) -> PartKind:
        """Return a kind by its name, which `field` of `reader` gives."""
        if kind not in KINDS:
            hints = [did_you_mean(kind, KINDS), f"Known: {', '.join(KINDS)}"]
            if reader.path == "parts":  # the part's name is the kind
                hints.insert(1, "Or give its `kind`.")
            problem = f"is not a kind of part: `{kind:.40}`"
            raise reader.fault(field, problem, " ".join(filter(None, hints)))
        try:
            return KINDS[kind]
        except UsageError as error:
            raise reader.fault(field, f"cannot be used: {error.what}", error.todo) from error

    def _json_value(self, reader: FieldReader[ModelFault], field: str) -> Any:
        value = reader.value(field)
        if not _is_json(value):
            raise reader.fault(field, "is not a text, number, list or mapping")
        return value


def _is_json(value: Any) -> bool:
    """Return whether JSON has such a value, of a size that a person writes."""
    pending, count = [value], 0
    while pending and count + len(pending) <= MAX_ENTRIES:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending += (*item.keys(), *item.values())
        elif isinstance(item, list):
            pending += item
        elif not (item is None or isinstance(item, str | bool | int | float)):
            return False
    return not pending
