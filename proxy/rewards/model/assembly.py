"""A model with its parts built: it scores groups, with a version for all that affects rewards."""

import asyncio
import contextlib
import hashlib
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from ajet_swarm.common.errors import AjetError
from core.settings.yaml_file import joined
from proxy.rewards.files import Stamp, stamp
from proxy.rewards.model.file import ModelFault, make
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
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartValues,
    SlowPart,
)
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    ObservesRequests,
    Score,
    extra_seconds_of,
)
from proxy.rewards.text import content_stems, read

log = logging.getLogger(__name__)

SLACK = 1.0
"""Seconds that a slow part gets beyond the time limit, which it enforces itself."""

_CODE = (
    "text.py",
    "model/spec.py",
    "model/assembly.py",
    "parts/expected_answer.py",
    "parts/patterns.py",
    "parts/schema.py",
)
"""Files of `proxy/rewards` that affect every reward; the version covers their content."""


@dataclass(eq=False)
class LivePart:
    """A part that was built; later models whose part is identical reuse it."""

    part: AnyPart
    identity: str
    """Equal for two parts of the same kind, name and settings."""
    files: tuple[Path, ...]
    stamp: Stamp
    """Fingerprint of the files as they were read."""
    slow: bool
    stop_listening: Callable[[], None] = lambda: None
    """Ends the reports of its health."""
    users: set[asyncio.Task[Any] | None] = field(default_factory=set)
    """The tasks that wait for it."""

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Count the current task among its users."""
        task = asyncio.current_task()
        self.users.add(task)
        try:
            yield
        finally:
            self.users.discard(task)


class Assembly:
    """A model whose parts are built.

    Args:
        model: The model.
        folder: Folder that relative paths start from.
        environment: What the parts may use besides their settings.
        reusable: Live parts; an identical one is reused instead of building another.

    Attributes:
        parts: The parts that are enabled, by name in their order.
        files: Files that the parts have read.
        stamp: Fingerprint of these files as they were read.
        slow: Name and part of each part that waits.
        observes_requests: Whether a part must be notified of new requests.
        looks_back: Whether a part compares with recent winners.

    Raises:
        ModelFault: settings of parts are invalid; reports line and field of each.
    """

    def __init__(
        self,
        model: RewardModel,
        folder: Path,
        environment: PartEnvironment,
        reusable: Sequence[LivePart] = (),
    ) -> None:
        self.model = model
        self._seconds = environment.seconds
        self._folder = folder
        self.parts: dict[str, LivePart] = {}
        faults: list[ModelFault] = []
        for spec in model.active:
            try:
                self.parts[spec.name] = _live_part(spec, model, folder, environment, reusable)
            except ModelFault as fault:
                faults.append(fault)
        if faults:
            raise joined(faults)
        self.live_parts = list(self.parts.values())
        self.files = tuple(file for live in self.live_parts for file in live.files)
        self.stamp: Stamp = tuple(entry for live in self.live_parts for entry in live.stamp)
        self._immediate = [
            (name, cast(GroupPart, live.part)) for name, live in self.parts.items() if not live.slow
        ]
        self.slow = [
            (name, cast(SlowPart, live.part)) for name, live in self.parts.items() if live.slow
        ]
        self.observes_requests = any(isinstance(part, ObservesRequests) for _, part in self.slow)
        self.looks_back = any(getattr(live.part, "looks_back", False) for live in self.live_parts)
        self._weigher = Weigher(model.active)
        self._base = _base_hash(model, self.live_parts)

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
        reasons = {spec.name: self._dependence(spec, judges) for spec in self.model.active}
        left_out = tuple((name, reason) for name, reason in reasons.items() if reason)
        if not left_out:
            return self, ()
        remaining = tuple(spec for spec in self.model.active if not reasons[spec.name])
        if not any(spec.counts for spec in remaining):
            return None, left_out
        return self._with_parts(_scaled(remaining, self.model.active)), left_out

    def unweighted(self) -> "Assembly | None":
        """Return the parts of weight 0 that score one answer at once, each with the weight 1.

        None if there are none.
        """
        parts = tuple(
            msgspec.structs.replace(spec, weight=1.0)
            for spec in self.model.active
            if not (spec.counts or spec.gate or self._dependence(spec, False))
        )
        return self._with_parts(parts) if parts else None

    def _dependence(self, spec: PartSpec, judges: bool) -> str:
        """Return why a part does not score an answer by itself; empty if it does."""
        if getattr(self.parts[spec.name].part, "judges_one_by_one", False):
            return "" if judges else "a judge costs a call for each answer: `probe.judges: true`"
        kind = KINDS[spec.kind]
        return kind.relative or "it waits for a process or a server" * kind.slow

    def _with_parts(self, parts: tuple[PartSpec, ...]) -> "Assembly":
        model = msgspec.structs.replace(self.model, parts=parts)
        environment = PartEnvironment(seconds=self._seconds)
        return Assembly(model, self._folder, environment, self.live_parts)

    @property
    def version(self) -> str:
        """Hash of everything that determines the rewards; empty while a slow part cannot score."""
        return self._version(tuple(part.health().version for _, part in self.slow))

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
        return _version_of((self._base, *versions)) if all(versions) else ""

    def part_input(self, context: GroupContext, recent: Sequence[frozenset[int]] = ()) -> PartInput:
        """Return the input of the parts for a group."""
        readings = [read(answer) for answer in context.answers]
        return PartInput(context, readings, content_stems(context.query), recent)

    async def score(self, group: PartInput) -> tuple[tuple[Score, ...] | Abstention, str]:
        """Return the scores of a group, or an abstention, and the version that made them.

        The parts that do not wait score first, then the slow ones concurrently.
        """
        columns = self._immediate_columns(group)
        if isinstance(columns, Abstention):
            return columns, self.version
        if not self.slow:
            return self._weigh(group, columns), self.version
        async with asyncio.TaskGroup() as scoring:
            tasks = [
                scoring.create_task(self._slow_column(name, part, group))
                for name, part in self.slow
            ]
        version = self._version(tuple(task.result()[1] for task in tasks))
        for (name, _), task in zip(self.slow, tasks, strict=True):
            column, _ = task.result()
            if isinstance(column, Abstention):
                return column, version
            columns[name] = column
        return self._weigh(group, columns), version

    def score_now(self, group: PartInput) -> tuple[Score, ...] | Abstention:
        """Return the scores of a group from a model without slow parts."""
        columns = self._immediate_columns(group)
        return columns if isinstance(columns, Abstention) else self._weigh(group, columns)

    def _immediate_columns(self, group: PartInput) -> dict[str, PartValues] | Abstention:
        """Return the values of each part that does not wait, by its name."""
        columns: dict[str, PartValues] = {}
        for name, part in self._immediate:
            try:
                columns[name] = part.score(group)
            except Exception as error:  # noqa: BLE001 - a fault of a part costs only this group
                return fault_of(name, error)
        return columns

    async def _slow_column(
        self, name: str, part: SlowPart, group: PartInput
    ) -> tuple[PartValues | Abstention, str]:
        """Return the values of a slow part and the version of the part that gave them."""
        before = part.health().version
        limit = self._seconds + SLACK + extra_seconds_of(part)
        column: PartValues | Abstention
        try:
            with self.parts[name].in_use():
                async with asyncio.timeout(limit):
                    column = await part.score(group)
        except TimeoutError:
            column = Abstention(name, f"no answer within {limit:g} s", late=True)
        except Exception as error:  # noqa: BLE001 - a fault of a part costs only this group
            column = fault_of(name, error)
        after = part.health().version
        learns = getattr(part, "learns_version", False)
        return column, (after or before) if learns else (before or after)

    def _weigh(
        self, group: PartInput, columns: Mapping[str, PartValues]
    ) -> tuple[Score, ...] | Abstention:
        indices = [answer.index for answer in group.context.answers]
        for name, column in columns.items():
            if column is not None and len(column) != len(indices):
                return Abstention(name, f"{len(column)} values for {len(indices)} answers")
        try:
            return self._weigher.scores(indices, [columns[part] for part in self.parts])
        except NothingApplies as why:
            return Abstention("model", str(why), inapplicable=True)
        except Exception as error:  # noqa: BLE001 - a part returned no numbers
            return fault_of("model", error)


def _version_of(versions: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:12]


def fault_of(part: str, error: Exception) -> Abstention:
    """Return the abstention for an error of a part or the model, with the place of its cause."""
    if isinstance(error, PartAbstained):
        return error.by(part)
    if isinstance(error, ModelFault):
        return Abstention(part, error.cause, file=error.file, line=error.line)
    if isinstance(error, AjetError):
        return Abstention(part, str(error))
    log.error("the part %s failed", part, exc_info=error)
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
        if old.identity == identity and old.stamp == stamp(old.files):
            return old
    part = make(spec, model, folder)
    if isinstance(part, NeedsEnvironment):
        part.place(environment)
    files = tuple(getattr(part, "files", ()))
    slow = inspect.iscoroutinefunction(part.score)
    return LivePart(part, identity, files, stamp(files), slow)


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


def _base_hash(model: RewardModel, live_parts: Sequence[LivePart]) -> str:
    """Return the hash of the model's meaning, its parts' code and the files they have read."""
    total = hashlib.sha256()
    meaning = [
        [spec.name, spec.kind, spec.weight, spec.share, spec.gate, dict(spec.settings)]
        for spec in model.active
    ]
    total.update(msgspec.json.encode([meaning, model.recent], order="deterministic"))
    rewards = Path(__file__).parents[1]
    files = [rewards / name for name in _CODE]
    for spec in model.active:
        module = sys.modules.get(KINDS[spec.kind].make.__module__)
        if module is not None and module.__file__:
            files.append(Path(module.__file__))
    files += [file for live in live_parts for file in live.files]
    for file in dict.fromkeys(files):
        total.update(b"\0")
        try:
            total.update(file.read_bytes())
        except OSError:  # deleted meanwhile: the file watch detects that
            total.update(b"missing")
    return total.hexdigest()
