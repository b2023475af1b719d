"""A model made ready to score: its parts, which version they are, and how a group goes through."""

import asyncio
import functools
import hashlib
import inspect
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from ajet_swarm.common.tasks import with_timeout
from core.scoring.advantage import RewardError
from core.settings.yaml_file import joined
from proxy.rewards.model.file import ModelFault, default_model, make
from proxy.rewards.model.spec import Model, NothingApplies, PartSpec, Weigher
from proxy.rewards.part import (
    KINDS,
    AnyPart,
    GroupPart,
    NeedsEnvironment,
    ObservesRequests,
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartValues,
    SlowPart,
)
from proxy.rewards.source import Abstention, GroupContext, Score, extra_seconds_of
from proxy.rewards.text import content_stems, read

log = logging.getLogger(__name__)

SLACK = 1.0
"""Seconds a slow part gets beyond the limit that it may keep itself."""

_CODE = (
    "text.py",
    "model/spec.py",
    "model/assembly.py",
    "parts/asked.py",
    "parts/compare.py",
    "parts/patterns.py",
    "parts/schema.py",
)
"""Files of `proxy/rewards` that decide about every reward."""

Stamp = tuple[tuple[str, int, int], ...]
"""Path, modification time (ns) and size of files; -1 for one that is missing."""


def stamp(files: Sequence[Path]) -> Stamp:
    """A cheap fingerprint of files."""
    found = []
    for file in files:
        try:
            facts = file.stat()
            found.append((str(file), facts.st_mtime_ns, facts.st_size))
        except OSError:
            found.append((str(file), -1, -1))
    return tuple(found)


@dataclass(eq=False)
class LivePart:
    """One part that was made; it outlives the models that only weigh it otherwise."""

    part: AnyPart
    identity: str
    """Equal for two parts of the same kind, name, settings and files."""
    files: tuple[Path, ...]
    slow: bool
    busy: int = 0
    """Groups that it scores now."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the last of them is done."""


@dataclass(frozen=True, slots=True)
class WeightedPart:
    """A part in its place in a model."""

    spec: PartSpec
    running: LivePart


class Assembly:
    """One model, ready to score."""

    def __init__(
        self,
        model: Model,
        folder: Path,
        around: PartEnvironment,
        kept: Sequence[LivePart] = (),
    ) -> None:
        """Args:
            model: What to make.
            folder: Where relative paths start.
            around: What parts may want to know.
            kept: Parts that run already: those that would be the same are used.

        Raises:
            ModelFault: settings of parts are wrong; names line and field of each.
        """
        self.model = model
        self._seconds = around.seconds
        self.slots: list[WeightedPart] = []
        faults: list[ModelFault] = []
        for spec in model.active:
            try:
                self.slots.append(WeightedPart(spec, _running(spec, model, folder, around, kept)))
            except ModelFault as fault:
                faults.append(fault)
        if faults:
            raise joined(faults)
        self.running = [slot.running for slot in self.slots]
        self.files = tuple(dict.fromkeys(file for one in self.running for file in one.files))
        self._now: list[tuple[str, GroupPart]] = []
        self._later: list[tuple[str, SlowPart, LivePart]] = []
        for slot in self.slots:
            name, part = slot.spec.name, slot.running.part
            if slot.running.slow:
                self._later.append((name, cast(SlowPart, part), slot.running))
            else:
                self._now.append((name, cast(GroupPart, part)))
        self.waits = bool(self._later)
        """Some parts are slow."""
        self.told = any(isinstance(part, ObservesRequests) for _, part, _ in self._later)
        """Some want to know of new requests."""
        self._names = [spec.name for spec in model.active]
        self._weigher = Weigher(model.active)
        self.looks_back = any(getattr(one.part, "looks_back", False) for one in self.running)
        self._base = _base(model, self.slots)
        self._versions: dict[tuple[str, ...], str] = {}

    @property
    def slow(self) -> list[tuple[str, SlowPart]]:
        """Name and part of those that wait for something."""
        return [(name, part) for name, part, _ in self._later]

    @property
    def version(self) -> str:
        """Hash of what makes the rewards; empty while a slow part has nothing that serves."""
        return self._version(tuple(part.health().version for _, part, _ in self._later))

    @property
    def spare(self) -> float:
        """Seconds beyond the limit that a group may need; see `SlowPart`."""
        return max((extra_seconds_of(part) for _, part in self.slow), default=0.0)

    def can_replace(self, old: "Assembly") -> bool:
        """Whether all its slow parts can score, and those that are new have shown it."""
        known = {id(part) for _, part in old.slow}
        shown = (id(part) in known or getattr(part, "proven", True) for _, part in self.slow)
        return bool(self.version) and all(shown)

    def _version(self, versions: tuple[str, ...]) -> str:
        """That of the model with these of its slow parts."""
        if not all(versions):
            return ""
        found = self._versions.get(versions)
        if found is None:
            text = "\n".join((self._base, *versions))
            found = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._versions = {versions: found}
        return found

    def look(self, context: GroupContext, recent: Sequence[frozenset[int]] = ()) -> PartInput:
        """What the parts look at."""
        readings = [read(answer) for answer in context.answers]
        return PartInput(context, readings, content_stems(context.query), recent)

    async def score(self, looked: PartInput) -> tuple[tuple[Score, ...] | Abstention, str]:
        """The scores of a group and the version that made them.

        What answers at once comes first, then the others together.
        """
        if not self._later:
            return self.score_now(looked), self.version
        columns = self._at_once(looked)
        if isinstance(columns, Abstention):
            return columns, self.version
        if len(self._later) == 1:
            answers = [await self._ask(*self._later[0], looked)]
        else:
            async with asyncio.TaskGroup() as together:
                asked = [together.create_task(self._ask(*one, looked)) for one in self._later]
            answers = [task.result() for task in asked]
        version = self._version(tuple(made_by for _, made_by in answers))
        said = dict(zip((name for name, _ in self._now), columns, strict=True))
        for (name, _, _), (answer, _) in zip(self._later, answers, strict=True):
            if isinstance(answer, Abstention):
                return answer, version
            said[name] = answer
        return self._weigh(looked, [said[name] for name in self._names]), version

    def score_now(self, looked: PartInput) -> tuple[Score, ...] | Abstention:
        """The scores of a group by a model without slow parts."""
        columns = self._at_once(looked)
        return columns if isinstance(columns, Abstention) else self._weigh(looked, columns)

    def _at_once(self, looked: PartInput) -> list[PartValues] | Abstention:
        columns: list[PartValues] = []
        try:
            for _, part in self._now:
                columns.append(part.score(looked))
        except PartAbstained as why:
            name = self._now[len(columns)][0]
            return Abstention(name, why.cause, why.traceback, why.file, why.line)
        except Exception as error:  # a part's defect must cost its group's rewards, not more
            name = self._now[len(columns)][0]
            log.exception("the part %s failed", name)
            return fault_of(name, error)
        return columns

    async def _ask(
        self, name: str, part: SlowPart, running: LivePart, looked: PartInput
    ) -> tuple[PartValues | Abstention, str]:
        """What a slow part says, and its version that says it."""
        before = part.health().version
        said = await self._said(name, part, running, looked)
        after = part.health().version
        learns = getattr(part, "learns_version", False)
        return said, (after or before) if learns else (before or after)

    async def _said(
        self, name: str, part: SlowPart, running: LivePart, looked: PartInput
    ) -> PartValues | Abstention:
        limit = self._seconds + SLACK + extra_seconds_of(part)
        running.busy += 1
        try:
            return await with_timeout(limit, part.score(looked))
        except TimeoutError:
            return Abstention(name, f"no answer within {limit:g} s", late=True)
        except PartAbstained as why:
            return Abstention(name, why.cause, why.traceback, why.file, why.line, late=why.late)
        except Exception as error:  # a part's defect must cost its group's rewards, not more
            log.exception("the part %s failed", name)
            return fault_of(name, error)
        finally:
            running.busy -= 1
            if not running.busy:
                running.idle.set()

    def _weigh(
        self, looked: PartInput, columns: list[PartValues]
    ) -> tuple[Score, ...] | Abstention:
        indices = [answer.index for answer in looked.context.answers]
        name = "model"
        try:
            for name, column in zip(self._names, columns, strict=True):
                if column is not None and len(column) != len(indices):
                    return Abstention(name, f"{len(column)} values for {len(indices)} answers")
            name = "model"
            return self._weigher.scores(indices, columns)
        except NothingApplies as why:
            return Abstention(name, str(why))
        except RewardError as error:
            return Abstention(name, str(error))
        except Exception as error:  # a part that said no numbers
            log.exception("the parts said no numbers")
            return fault_of(name, error)


def fault_of(part: str, error: Exception) -> Abstention:
    """The abstention for a defect, with its place."""
    last = traceback.extract_tb(error.__traceback__)
    file, line = (last[-1].filename, last[-1].lineno or 0) if last else ("", 0)
    told = "".join(traceback.format_exception(error))
    return Abstention(part, f"{type(error).__name__}: {error}", told, file, line)


def _running(
    spec: PartSpec, model: Model, folder: Path, around: PartEnvironment, kept: Sequence[LivePart]
) -> LivePart:
    given = [spec.name, spec.kind, str(folder), dict(spec.settings)]
    identity = msgspec.json.encode(given, order="deterministic").decode()
    for old in kept:
        if old.identity == _with_files(identity, old.files):
            return old
    part = make(spec, model, folder)
    if isinstance(part, NeedsEnvironment):
        part.place(around)
    files = tuple(getattr(part, "files", ()))
    slow = inspect.iscoroutinefunction(part.score)
    return LivePart(part, _with_files(identity, files), files, slow)


def _with_files(identity: str, files: tuple[Path, ...]) -> str:
    return identity + repr(stamp(files))


def _base(model: Model, slots: Sequence[WeightedPart]) -> str:
    """Hash of the model's meaning, the code of its parts and the files they have read."""
    total = hashlib.sha256()
    meaning = [
        [one.name, one.kind, one.weight, one.share, one.gate, dict(one.settings)]
        for one in model.active
    ]
    total.update(msgspec.json.encode([meaning, model.recent], order="deterministic"))
    rewards = Path(__file__).parents[1]
    code = [rewards / name for name in _CODE]
    for slot in slots:
        module = sys.modules.get(KINDS[slot.spec.kind].make.__module__)
        if module is not None and module.__file__:
            code.append(Path(module.__file__))
    for file in dict.fromkeys((*code, *(file for slot in slots for file in slot.running.files))):
        total.update(b"\0")
        try:
            total.update(file.read_bytes())
        except OSError:  # gone since: the watch will see it
            total.update(b"missing")
    return total.hexdigest()


@functools.cache
def _assembly() -> Assembly:
    return Assembly(default_model(), Path(), PartEnvironment())


def score_group(ctx: GroupContext) -> tuple[Score, ...]:
    """Scores of a group, each reward in [0, 1]; the same answers get the same rewards always.

    Raises:
        PartAbstained: an answer cannot be read.
    """
    assembly = _assembly()
    found = assembly.score_now(assembly.look(ctx))
    if isinstance(found, Abstention):
        raise PartAbstained(found.cause, found.traceback, found.file, found.line)
    return found
