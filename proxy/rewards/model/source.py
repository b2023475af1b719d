"""The rewards as the operator composed them: gates and weighted parts, reloaded when saved."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks, gather_fast
from core.events import RewardPart
from proxy.rewards.model.assembly import Assembly, LivePart, Stamp, fault_of, stamp
from proxy.rewards.model.file import ModelFault, default_model, load
from proxy.rewards.model.spec import Model
from proxy.rewards.part import ObservesRequests, PartEnvironment, PartInput, SlowPart
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    HealthNotifier,
    Listener,
    RequestReport,
    Score,
    ScoreSheet,
    SourceHealth,
)

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between two looks at the files."""
SETTLE = 0.04
"""Seconds between two looks that must agree, so that a half-written save is not loaded."""


class RecentWinners:
    """Word trigrams of winners by group, the newest last."""

    def __init__(self) -> None:
        self._grams: dict[str, frozenset[int]] = {}

    def besides(self, group_id: str) -> list[frozenset[int]]:
        """Those of all other groups: what is scored again must not resemble itself."""
        return [one for group, one in self._grams.items() if group != group_id]

    def keep(
        self, assembly: Assembly, looked: PartInput, found: tuple[Score, ...] | Abstention
    ) -> None:
        """Note the winner of a group, where a part of the model looks back."""
        if assembly.looks_back and not isinstance(found, Abstention):
            best = max(range(len(found)), key=lambda place: (found[place].reward, -place))
            self._grams[looked.context.group_id] = looked.readings[best].grams
            while len(self._grams) > assembly.model.recent:
                del self._grams[next(iter(self._grams))]


class ComposedSource:
    """Scores with the newest model that loads.

    Without a file, or while the file is not there and need not be, that is the built-in model.
    A save that does not load leaves the old model at work and shows in `health`.
    """

    def __init__(
        self,
        file: Path | None = None,
        around: PartEnvironment | None = None,
        *,
        required: bool = False,
        model: Model | None = None,
    ) -> None:
        """Args:
        file: Where the model is; watched.
        around: What parts may want to know.
        required: The file must be there; else the built-in model serves without it.
        model: Instead of a file.
        """
        self.file = file
        self._around = around or PartEnvironment()
        self._required = required
        self._tasks = Tasks("rewards")
        self._watching = False
        self._kick = asyncio.Event()
        self._loaded = asyncio.Event()
        self._serving: Assembly | None = None
        self._coming: Assembly | None = None
        """A newer one, of which a part is not ready yet."""
        self._fault: Abstention | None = None
        self._seen: Stamp | None = None
        self._removers: list[Callable[[], None]] = []
        self._recent = RecentWinners()
        self.told = False
        """Whether a part wants to know of new requests."""
        self.spare = 0.0
        """Seconds beyond the limit that a group may need; see `SlowPart`."""
        self._board = HealthNotifier(SourceHealth(False, None, ""))
        if file is None:
            folder = Path.cwd() if model is None or model.file is None else model.file.parent
            self._take(Assembly(model or default_model(), folder, self._around))

    @property
    def name(self) -> str:
        """`builtin`, else the file."""
        model = self.model
        return str(self.file) if self.file and (model is None or model.file) else "builtin"

    @property
    def version(self) -> str:
        """Hash of what makes the rewards; empty while nothing serves."""
        return self._serving.version if self._serving else ""

    @property
    def model(self) -> Model | None:
        """The model that serves; None while none does."""
        return self._serving.model if self._serving else None

    def kind_of(self, name: str) -> str:
        """The kind of a part of the newest model, also while it is not ready; empty for none."""
        newest = self._coming or self._serving
        spec = newest.model.named(name) if newest else None
        return spec.kind if spec is not None else ""

    def parts(self) -> tuple[RewardPart, ...]:
        """The parts of the model that serves, those that are off too."""
        model = self.model
        return tuple(
            RewardPart(
                name=one.name,
                kind=one.kind,
                weight=one.weight if one.share is None else one.share,
                share=one.share is not None,
                gate=one.gate,
                enabled=one.enabled,
            )
            for one in (model.parts if model else ())
        )

    async def start(self) -> None:
        """Load, start the slow parts and begin to watch."""
        if self.file is None:
            if self._serving is not None:
                await _start(self._serving, ())
            self._show()
            return
        await self._load()
        self._watching = True
        self._tasks.spawn(self._watch(self.file), "watch")

    async def close(self) -> None:
        """End all parts; calls under way abstain."""
        await self._tasks.close()
        self._listen(())
        found = {id(one): one for one in (*_running(self._serving), *_running(self._coming))}
        async with asyncio.TaskGroup() as closing:
            for running in found.values():
                closing.create_task(_close(running))

    async def reload(self) -> None:
        """Look at the files now, and wait until what they say is loaded or is known not to be."""
        if not self._watching:
            return
        self._loaded.clear()
        self._kick.set()
        async with asyncio.timeout(self._around.seconds):
            await self._loaded.wait()

    def health(self) -> SourceHealth:
        """Whether the newest save serves, and its parts are well."""
        return self._board.now

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change; returns what takes it away."""
        return self._board.add(listener)

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Tell the parts that want to know, in order; the most candidates anyone asks for win."""
        report = RequestReport(metadata)
        for _, part in self._serving.slow if self._serving else ():
            if isinstance(part, ObservesRequests):
                one = await part.request(request_id, task_id, query, report.metadata)
                most = max(filter(None, (report.repeat, one.repeat)), default=None)
                report = RequestReport(one.metadata, most, report.error or one.error)
        return report

    def score_at_once(self, ctx: GroupContext) -> ScoreSheet | None:
        """The same as `score`, under 0.1 ms; None where something would have to be waited for."""
        started = time.perf_counter()
        assembly = self._serving
        if assembly is None or assembly.waits or not ctx.answers:
            return None
        looked = _look(self.name, assembly, ctx, self._recent)
        if isinstance(looked, Abstention):
            return _sheet(looked, assembly.version, started)
        found = assembly.score_now(looked)
        self._recent.keep(assembly, looked, found)
        return _sheet(found, assembly.version, started)

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Score one group; a model without slow parts does it on the loop."""
        if (sheet := self.score_at_once(ctx)) is not None:
            return sheet
        started = time.perf_counter()
        assembly = self._serving
        if assembly is None:
            fault = self._fault or Abstention("model", "the rewards are still loading")
            return _sheet(fault, "", started)
        if not ctx.answers:
            fault = Abstention(self.name, "the group has no answers to score")
            return _sheet(fault, "", started)
        looked = _look(self.name, assembly, ctx, self._recent)
        if isinstance(looked, Abstention):
            return _sheet(looked, assembly.version, started)
        found, version = await assembly.score(looked)  # a slow part may learn its own meanwhile
        self._recent.keep(assembly, looked, found)
        return _sheet(found, version, started)

    # --- loading --------------------------------------------------------------------------------

    async def _watch(self, file: Path) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._kick.wait()
            kicked = self._kick.is_set()
            self._kick.clear()
            if await asyncio.to_thread(self._look, file) != self._seen:
                await self._load()
            if kicked:
                self._loaded.set()

    def _look(self, file: Path) -> Stamp:
        newest = self._coming or self._serving
        return stamp((file, *(newest.files if newest else ())))

    async def _load(self) -> None:
        """Load the file as it is now, once two looks agree."""
        assert self.file is not None
        seen = await asyncio.to_thread(self._look, self.file)
        for _ in range(20 if self._watching else 0):  # an editor may be in the middle of its save
            await asyncio.sleep(SETTLE)
            again = await asyncio.to_thread(self._look, self.file)
            if again == seen:
                break
            seen = again
        self._seen = seen
        kept = (*_running(self._coming), *_running(self._serving))
        try:
            made = await asyncio.to_thread(self._made, self.file, kept)
            await _start(made, kept)
        except ModelFault as fault:
            self._fault = Abstention("model", fault.cause, file=fault.file, line=fault.line)
            self._show()
            return
        except AjetError as error:
            self._fault = Abstention("model", str(error), file=str(self.file))
            self._show()
            return
        except Exception as error:  # a part of another package: its defect is a fault of the model
            log.exception("the rewards did not load")
            self._fault = fault_of("model", error)
            self._show()
            return
        self._fault = None
        self._seen = (*seen[:1], *await asyncio.to_thread(stamp, made.files))
        self._take(made)

    def _made(self, file: Path, kept: Sequence[LivePart]) -> Assembly:
        newest = self._coming or self._serving
        loaded = newest is not None and newest.model.file is not None
        if not file.exists() and loaded:
            raise ModelFault(
                str(file), 0, "", "the file is gone",
                "Restore it; for the built-in rewards restart the proxy without it",
            )  # fmt: skip
        model = default_model() if not self._required and not file.exists() else load(file)
        return Assembly(model, file.parent, self._around, kept)

    def _take(self, made: Assembly) -> None:
        """Serve with `made`, at once if its parts are ready and else as soon as they are."""
        before = self._coming
        self._coming = made
        self._listen((made, self._serving) if self._serving else (made,))
        if before is not None:
            self._retire(before)
        self._changed()

    def _changed(self) -> None:
        """A part's health changed, or a model came."""
        coming, old = self._coming, self._serving
        if coming is not None and (old is None or not old.version or coming.can_replace(old)):
            self._serving, self._coming = coming, None
            self.spare, self.told = coming.spare, coming.told
            self._listen((coming,))
            if old is not None:
                self._retire(old)
        self._show()

    def _show(self) -> None:
        fault, level, waits = self._fault, "error", ""
        newest = self._coming or self._serving
        slow = newest.slow if newest is not None and fault is None else ()
        for name, part in slow:
            health = part.health()
            unproven = self._coming is not None and not getattr(part, "proven", True)
            if unproven or not health.ok:
                waits = name if unproven or health.error is None else ""
                if health.error is not None:
                    setting = getattr(part, "faulty_setting", "")
                    level = health.level
                    fault = _placed(health.error, newest, name, setting)
                break
        well = fault is None and not waits and self._serving is not None and self._coming is None
        self._board.post(SourceHealth(well, fault, self.version, level, waits))

    def _listen(self, assemblies: Sequence[Assembly]) -> None:
        """Hear of the health of these, and of no others."""
        for remove in self._removers:
            remove()
        parts = {id(part): part for one in assemblies for _, part in one.slow}
        self._removers = [part.add_listener(self._heard) for part in parts.values()]

    def _heard(self, health: SourceHealth) -> None:
        self._changed()

    def _retire(self, old: Assembly) -> None:
        """Close those of its parts that nobody has any more, once their groups are done."""
        used = {id(one) for one in (*_running(self._serving), *_running(self._coming))}
        for running in old.running:
            if running.slow and id(running) not in used:
                self._tasks.spawn(self._close_idle(running), "retire")

    async def _close_idle(self, running: LivePart) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._around.seconds):
                while running.busy:
                    running.idle.clear()
                    await running.idle.wait()
        await _close(running)


def _look(
    name: str, assembly: Assembly, ctx: GroupContext, recent: RecentWinners
) -> PartInput | Abstention:
    try:
        return assembly.look(ctx, recent.besides(ctx.group_id))
    except Exception as error:  # an odd answer must cost its group's rewards, not the proxy
        log.exception("the answers of group %s could not be read", ctx.group_id)
        return fault_of(name, error)


def _sheet(found: tuple[Score, ...] | Abstention, version: str, started: float) -> ScoreSheet:
    seconds = time.perf_counter() - started
    if isinstance(found, Abstention):
        return ScoreSheet((), found, version, seconds)
    return ScoreSheet(found, None, version, seconds)


def _placed(fault: Abstention, newest: Assembly | None, name: str, field: str) -> Abstention:
    """The trouble of a part with the place of the setting that makes it, where one does."""
    model = newest.model if newest is not None else Model(())
    spec = model.named(name)
    if not field or fault.file or spec is None or model.file is None:
        return fault
    line = spec.lines.get(field, spec.line)
    cause = f"parts.{name}.{field}: {fault.cause}"
    return dataclasses.replace(fault, cause=cause, file=str(model.file), line=line)


def _running(assembly: Assembly | None) -> list[LivePart]:
    return assembly.running if assembly else []


async def _start(made: Assembly, kept: Sequence[LivePart]) -> None:
    """Start the slow parts that do not run yet; where one of them cannot, none is left running."""
    going = {id(one.part) for one in kept}
    fresh = [one for one in made.running if one.slow and id(one.part) not in going]
    try:
        await gather_fast(*(cast(SlowPart, one.part).start() for one in fresh))
    except BaseException:
        for one in fresh:
            await _close(one)
        raise


async def _close(running: LivePart) -> None:
    if not running.slow:
        return
    try:
        await cast(SlowPart, running.part).close()
    except Exception:  # another package's code: the other parts end all the same
        log.exception("a part could not be closed")
