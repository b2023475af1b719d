"""A model with its parts built: it scores groups, with a version for all that affects rewards."""

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

from core.scoring.advantage import RewardError
from core.settings.yaml_file import joined
from proxy.rewards.model.file import ModelFault, default_model, make
from proxy.rewards.model.spec import (
    NothingApplies,
    PartSpec,
    RewardModel,
    Weigher,
    positive_sum,
)
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
"""Seconds that a slow part gets beyond the time limit, which it enforces itself."""

_CODE = (
    "text.py",
    "model/spec.py",
    "model/assembly.py",
    "parts/expected_answer.py",
    "parts/compare.py",
    "parts/patterns.py",
    "parts/schema.py",
)
"""Files of `proxy/rewards` that affect every reward; the version covers their content."""

Stamp = tuple[tuple[str, int, int], ...]
"""Path, modification time (ns) and size of each file; -1 for a missing file."""


def stamp(files: Sequence[Path]) -> Stamp:
    """Return a cheap fingerprint of files."""
    fingerprint = []
    for file in files:
        try:
            status = file.stat()
            fingerprint.append((str(file), status.st_mtime_ns, status.st_size))
        except OSError:
            fingerprint.append((str(file), -1, -1))
    return tuple(fingerprint)


@dataclass(eq=False)
class LivePart:
    """A part that was built; later models whose part is identical reuse it."""

    part: AnyPart
    identity: str
    """Equal for two parts of the same kind, name, settings and file contents."""
    files: tuple[Path, ...]
    slow: bool
    busy: int = 0
    """Number of groups that it is scoring."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever `busy` falls to 0."""


@dataclass(frozen=True, slots=True)
class WeightedPart:
    """A part together with its entry in the model."""

    spec: PartSpec
    live: LivePart


class Assembly:
    """A model whose parts are built."""

    def __init__(
        self,
        model: RewardModel,
        folder: Path,
        environment: PartEnvironment,
        reusable: Sequence[LivePart] = (),
    ) -> None:
        """Build the parts of a model.

        Args:
            model: The model.
            folder: Folder that relative paths start from.
            environment: What the parts may use besides their settings.
            reusable: Live parts; an identical one is reused instead of building another.

        Raises:
            ModelFault: settings of parts are invalid; reports line and field of each.
        """
        self.model = model
        self._seconds = environment.seconds
        self._folder = folder
        self.weighted_parts: list[WeightedPart] = []
        faults: list[ModelFault] = []
        for spec in model.active:
            try:
                live = _live_part(spec, model, folder, environment, reusable)
                self.weighted_parts.append(WeightedPart(spec, live))
            except ModelFault as fault:
                faults.append(fault)
        if faults:
            raise joined(faults)
        self.live_parts = [weighted.live for weighted in self.weighted_parts]
        self.files = tuple(dict.fromkeys(file for one in self.live_parts for file in one.files))
        self._immediate: list[tuple[str, GroupPart]] = []
        self._slow: list[tuple[str, SlowPart, LivePart]] = []
        for weighted in self.weighted_parts:
            name, part = weighted.spec.name, weighted.live.part
            if weighted.live.slow:
                self._slow.append((name, cast(SlowPart, part), weighted.live))
            else:
                self._immediate.append((name, cast(GroupPart, part)))
        self.has_slow_parts = bool(self._slow)
        slow_parts = [part for _, part, _ in self._slow]
        self.observes_requests = any(isinstance(part, ObservesRequests) for part in slow_parts)
        """Whether a part must be notified of new requests."""
        self._names = [spec.name for spec in model.active]
        self._weigher = Weigher(model.active)
        self.looks_back = any(getattr(one.part, "looks_back", False) for one in self.live_parts)
        self._base = _base_hash(model, self.weighted_parts)
        self._versions: dict[tuple[str, ...], str] = {}

    def pointwise(
        self, judges: bool = False
    ) -> tuple["Assembly | None", tuple[tuple[str, str], ...]]:
        """Return the model without the parts that depend on more than one answer.

        The other parts take their place up to a sum of 1, so that rewards from 0 to 1 keep their
        scale.

        Args:
            judges: Whether to include judges that judge each answer by itself.

        Returns:
            The model, or None if no part with a weight remains; and name and reason of each part
            that is left out.
        """
        left_out = []
        for weighted in self.weighted_parts:
            if reason := _dependence(weighted, judges):
                left_out.append((weighted.spec.name, reason))
        if not left_out:
            return self, ()
        names = {name for name, _ in left_out}
        parts = tuple(spec for spec in self.model.active if spec.name not in names)
        if not any(spec.counts for spec in parts):
            return None, tuple(left_out)
        model = msgspec.structs.replace(self.model, parts=_scaled(parts, self.model.active))
        environment = PartEnvironment(seconds=self._seconds)
        return Assembly(model, self._folder, environment, self.live_parts), tuple(left_out)

    def unweighted(self) -> "Assembly | None":
        """Return the parts of weight 0 that score one answer at once, each with the weight 1.

        None if there are none.
        """
        parts = tuple(
            msgspec.structs.replace(weighted.spec, weight=1.0)
            for weighted in self.weighted_parts
            if not (weighted.spec.counts or weighted.spec.gate or _dependence(weighted, False))
        )
        if not parts:
            return None
        model = msgspec.structs.replace(self.model, parts=parts)
        environment = PartEnvironment(seconds=self._seconds)
        return Assembly(model, self._folder, environment, self.live_parts)

    @property
    def slow(self) -> list[tuple[str, SlowPart]]:
        """Name and part of each part that waits."""
        return [(name, part) for name, part, _ in self._slow]

    @property
    def version(self) -> str:
        """Hash of everything that determines the rewards; empty while a slow part cannot score."""
        return self._version(tuple(part.health().version for _, part, _ in self._slow))

    @property
    def extra_seconds(self) -> float:
        """Seconds beyond the time limit that a group may need; see `SlowPart`."""
        return max((extra_seconds_of(part) for _, part in self.slow), default=0.0)

    def can_replace(self, old: "Assembly") -> bool:
        """Return whether all slow parts can score and those not in `old` have proven it."""
        running = {id(part) for _, part in old.slow}
        proven = (id(part) in running or getattr(part, "proven", True) for _, part in self.slow)
        return bool(self.version) and all(proven)

    def _version(self, versions: tuple[str, ...]) -> str:
        """Return the version of the model with these versions of its slow parts."""
        if not all(versions):
            return ""
        version = self._versions.get(versions)
        if version is None:
            text = "\n".join((self._base, *versions))
            version = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._versions = {versions: version}
        return version

    def part_input(self, context: GroupContext, recent: Sequence[frozenset[int]] = ()) -> PartInput:
        """Return the input of the parts for a group."""
        readings = [read(answer) for answer in context.answers]
        return PartInput(context, readings, content_stems(context.query), recent)

    async def score(self, group: PartInput) -> tuple[tuple[Score, ...] | Abstention, str]:
        """Return the scores of a group, or an abstention, and the version that made them.

        The parts that do not wait score first, then the slow ones concurrently.
        """
        if not self._slow:
            return self.score_now(group), self.version
        columns = self._score_immediate(group)
        if isinstance(columns, Abstention):
            return columns, self.version
        if len(self._slow) == 1:
            results = [await self._score_versioned(*self._slow[0], group)]
        else:
            async with asyncio.TaskGroup() as scoring:
                tasks = [
                    scoring.create_task(self._score_versioned(*one, group)) for one in self._slow
                ]
            results = [task.result() for task in tasks]
        version = self._version(tuple(part_version for _, part_version in results))
        by_name = dict(zip((name for name, _ in self._immediate), columns, strict=True))
        for (name, _, _), (answer, _) in zip(self._slow, results, strict=True):
            if isinstance(answer, Abstention):
                return answer, version
            by_name[name] = answer
        return self._weigh(group, [by_name[name] for name in self._names]), version

    def score_now(self, group: PartInput) -> tuple[Score, ...] | Abstention:
        """Return the scores of a group from a model without slow parts."""
        columns = self._score_immediate(group)
        return columns if isinstance(columns, Abstention) else self._weigh(group, columns)

    def _score_immediate(self, group: PartInput) -> list[PartValues] | Abstention:
        columns: list[PartValues] = []
        try:
            for _, part in self._immediate:
                columns.append(part.score(group))
        except PartAbstained as why:
            name = self._immediate[len(columns)][0]
            return Abstention(name, why.cause, why.traceback, why.file, why.line)
        except Exception as error:  # a fault of a part must affect only this group
            name = self._immediate[len(columns)][0]
            log.exception("the part %s failed", name)
            return fault_of(name, error)
        return columns

    async def _score_versioned(
        self, name: str, part: SlowPart, live: LivePart, group: PartInput
    ) -> tuple[PartValues | Abstention, str]:
        """Return the values of a slow part and the version of the part that gave them."""
        before = part.health().version
        values = await self._score_slow(name, part, live, group)
        after = part.health().version
        learns = getattr(part, "learns_version", False)
        return values, (after or before) if learns else (before or after)

    async def _score_slow(
        self, name: str, part: SlowPart, live: LivePart, group: PartInput
    ) -> PartValues | Abstention:
        limit = self._seconds + SLACK + extra_seconds_of(part)
        live.busy += 1
        try:
            async with asyncio.timeout(limit):
                return await part.score(group)
        except TimeoutError:
            return Abstention(name, f"no answer within {limit:g} s", late=True)
        except PartAbstained as why:
            return Abstention(name, why.cause, why.traceback, why.file, why.line, late=why.late)
        except Exception as error:  # a fault of a part must affect only this group
            log.exception("the part %s failed", name)
            return fault_of(name, error)
        finally:
            live.busy -= 1
            if not live.busy:
                live.idle.set()

    def _weigh(self, group: PartInput, columns: list[PartValues]) -> tuple[Score, ...] | Abstention:
        indices = [answer.index for answer in group.context.answers]
        name = "model"
        try:
            for name, column in zip(self._names, columns, strict=True):
                if column is not None and len(column) != len(indices):
                    return Abstention(name, f"{len(column)} values for {len(indices)} answers")
            name = "model"
            return self._weigher.scores(indices, columns)
        except NothingApplies as why:
            return Abstention(name, str(why), inapplicable=True)
        except RewardError as error:
            return Abstention(name, str(error))
        except Exception as error:  # a part returned something that is not a number
            log.exception("the parts returned unusable values")
            return fault_of(name, error)


def _dependence(weighted: WeightedPart, judges: bool) -> str:
    """Return why a part does not score an answer by itself; empty if it does."""
    if getattr(weighted.live.part, "judges_one_by_one", False):
        return "" if judges else "a judge costs a call for each answer: `probe.judges: true`"
    kind = KINDS[weighted.spec.kind]
    return kind.relative or "it waits for a process or a server" * kind.slow


def fault_of(part: str, error: Exception) -> Abstention:
    """Return the abstention for an exception in a part, with its place."""
    last = traceback.extract_tb(error.__traceback__)
    file, line = (last[-1].filename, last[-1].lineno or 0) if last else ("", 0)
    trace = "".join(traceback.format_exception(error))
    return Abstention(part, f"{type(error).__name__}: {error}", trace, file, line)


def _live_part(
    spec: PartSpec,
    model: RewardModel,
    folder: Path,
    environment: PartEnvironment,
    reusable: Sequence[LivePart],
) -> LivePart:
    identifying = [spec.name, spec.kind, str(folder), dict(spec.settings)]
    identity = msgspec.json.encode(identifying, order="deterministic").decode()
    for old in reusable:
        if old.identity == _with_files(identity, old.files):
            return old
    part = make(spec, model, folder)
    if isinstance(part, NeedsEnvironment):
        part.place(environment)
    files = tuple(getattr(part, "files", ()))
    slow = inspect.iscoroutinefunction(part.score)
    return LivePart(part, _with_files(identity, files), files, slow)


def _with_files(identity: str, files: tuple[Path, ...]) -> str:
    return identity + repr(stamp(files))


def _scaled(parts: Sequence[PartSpec], all_parts: Sequence[PartSpec]) -> tuple[PartSpec, ...]:
    """Return parts whose positive weights add up to those of all parts, but to 1 at most."""
    own, whole = positive_sum(parts), positive_sum(all_parts)
    factor = max(1.0, min(1.0, whole) / own) if own else 1.0
    return tuple(
        msgspec.structs.replace(spec, weight=spec.weight * factor)
        if spec.weight > 0 and spec.share is None and not spec.gate
        else spec
        for spec in parts
    )


def _base_hash(model: RewardModel, weighted_parts: Sequence[WeightedPart]) -> str:
    """Return the hash of the model's meaning, its parts' code and the files they have read."""
    total = hashlib.sha256()
    meaning = [
        [one.name, one.kind, one.weight, one.share, one.gate, dict(one.settings)]
        for one in model.active
    ]
    total.update(msgspec.json.encode([meaning, model.recent], order="deterministic"))
    rewards = Path(__file__).parents[1]
    code = [rewards / name for name in _CODE]
    for weighted in weighted_parts:
        module = sys.modules.get(KINDS[weighted.spec.kind].make.__module__)
        if module is not None and module.__file__:
            code.append(Path(module.__file__))
    files = [file for weighted in weighted_parts for file in weighted.live.files]
    for file in dict.fromkeys((*code, *files)):
        total.update(b"\0")
        try:
            total.update(file.read_bytes())
        except OSError:  # deleted meanwhile: the file watch detects that
            total.update(b"missing")
    return total.hexdigest()


@functools.cache
def _builtin_assembly() -> Assembly:
    return Assembly(default_model(), Path(), PartEnvironment())


def score_group(ctx: GroupContext) -> tuple[Score, ...]:
    """Return the scores that the built-in model gives a group, each reward in [0, 1].

    They depend only on the group.

    Raises:
        PartAbstained: an answer cannot be read.
    """
    assembly = _builtin_assembly()
    scores = assembly.score_now(assembly.part_input(ctx))
    if isinstance(scores, Abstention):
        raise PartAbstained(scores.cause, scores.traceback, scores.file, scores.line)
    return scores
