"""Rewards from a model of gates and weighted parts, loaded again whenever its file is saved.

Commands that change the file of the rewards while they are in use.

Comments, order and everything else in the file are preserved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks, keep_running, run_all
from ajet_swarm.common.text import did_you_mean
from ajet_swarm.common.yaml_positions import compose, named_nodes
from core.events import RewardPart
from core.settings import edit
from core.state.common import record_of
from proxy.rewards.files import Stamp, settled, stamp
from proxy.rewards.model.assembly import Assembly, LivePart, fault_of
from proxy.rewards.model.file import DEFAULT_TEXT, ModelFault, default_model, load, parse, read
from proxy.rewards.model.spec import RewardModel
from proxy.rewards.part import PartEnvironment, PartInput, SlowPart
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    ObservesRequests,
    Reporting,
    RequestReport,
    RewardSource,
    Score,
    ScoreSheet,
    SourceHealth,
)

log = logging.getLogger(__name__)

POLL = 0.15
"""Seconds between two checks of the files."""


class ComposedSource(Reporting):
    """A reward source that scores with the newest model that loads.

    Without a file, or while an optional file does not exist, that is the built-in model. After a
    save that does not load, the previous model keeps scoring and `health` reports the fault.
    """

    def __init__(
        self,
        file: Path | None = None,
        environment: PartEnvironment | None = None,
        *,
        required: bool = False,
        model: RewardModel | None = None,
        name: str = "builtin",
    ) -> None:
        """Args:
        file: File of the model; it is watched.
        environment: What parts may use besides their settings.
        required: Whether the file must exist; otherwise the built-in model stands in for it.
        model: Model to use in place of a file.
        name: Name of the source while no file makes the rewards.
        """
        self._name = name
        self.file = file
        self._environment = environment or PartEnvironment()
        self._clock = self._environment.runtime.clock.monotonic
        self._required = required
        self._model = model
        self._tasks = Tasks("rewards")
        self._watching = False
        self._load_lock = asyncio.Lock()
        self.serving: Assembly | None = None
        """The assembly that scores; None while none does."""
        self._pending: Assembly | None = None
        """A newer assembly, of which a part is not ready yet."""
        self._fault: Abstention | None = None
        self._loaded_stamp: Stamp | None = None
        self._open: set[LivePart] = set()
        """The slow parts that are not closed yet, started or not: one that scores connects."""
        self._recent: dict[str, frozenset[int]] = {}
        """Word trigrams of winners by group, newest last."""
        super().__init__(SourceHealth(False, None, ""))
        if file is None:
            assembly = self._assemble(())
            self._open.update(live for live in assembly.live_parts if live.slow)
            self._adopt(assembly)

    @property
    def name(self) -> str:
        """The path of the file; `builtin` for the built-in rewards, `hook` for a folder alone."""
        model = self.model
        return str(self.file) if self.file and (model is None or model.file) else self._name

    @property
    def version(self) -> str:
        """Hash of everything that determines the rewards; empty while no model scores."""
        return self.serving.version if self.serving else ""

    @property
    def observes_requests(self) -> bool:
        """Whether a part must be notified of new requests."""
        return self.serving is not None and self.serving.observes_requests

    @property
    def extra_seconds(self) -> float:
        """Seconds beyond the time limit that a group may need; see `SlowPart`."""
        return self.serving.extra_seconds if self.serving else 0.0

    @property
    def model(self) -> RewardModel | None:
        """The model that scores; None while none does."""
        return self.serving.model if self.serving else None

    def kind_of(self, name: str) -> str:
        """Return the kind of a part of the newest model, ready or not; empty for no such part."""
        newest = self._pending or self.serving
        spec = newest.model.named(name) if newest else None
        return spec.kind if spec is not None else ""

    def parts(self) -> tuple[RewardPart, ...]:
        """Return the parts of the model that scores, disabled ones included."""
        model = self.model
        return tuple(
            record_of(
                RewardPart,
                spec,
                weight=spec.weight if spec.share is None else spec.share,
                share=spec.share is not None,
            )
            for spec in (model.parts if model else ())
        )

    async def start(self) -> None:
        """Load the model, start its slow parts, and begin to watch the file."""
        if self.serving is not None:
            await self._start(self.serving.live_parts)
            self._loaded_stamp = self.serving.stamp
            self._update_health()
            if not self.serving.files:
                return
        else:
            await self._load_changes()
        self._watching = True
        watch = keep_running(self._watch, "the watch over the rewards' files")
        self._tasks.spawn(watch, "watch")

    async def close(self) -> None:
        """Close all parts; groups being scored abstain."""
        await self._tasks.close()
        async with asyncio.TaskGroup() as closing:
            for live in tuple(self._open):
                closing.create_task(self._close(live))

    async def reload(self) -> None:
        """Check the files now; return when the present ones are loaded or have failed to load."""
        if self._watching:
            check = self._tasks.spawn(self._load_changes(), "reload")
            await asyncio.wait([check], timeout=self._environment.seconds)

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Notify the observing parts in order; the largest requested number of candidates wins."""
        report = RequestReport(metadata)
        assembly = self.serving
        for name, part in assembly.slow if assembly else ():
            if assembly and isinstance(part, ObservesRequests):
                with assembly.parts[name].in_use():
                    answer = await part.request(request_id, task_id, query, report.metadata)
                repeat = max(filter(None, (report.repeat, answer.repeat)), default=None)
                report = RequestReport(answer.metadata, repeat, report.error or answer.error)
        return report

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Score one group; without slow parts this never waits."""
        started, assembly, version = self._clock(), self.serving, ""
        scores: tuple[Score, ...] | Abstention
        if assembly is None:
            scores = self._fault or Abstention("model", "the rewards are still loading")
        elif not ctx.answers:
            scores = Abstention(self.name, "the group has no answers to score")
        else:
            # a group that is scored again must not match itself
            recent = [grams for name, grams in self._recent.items() if name != ctx.group_id]
            try:
                group = assembly.part_input(ctx, recent)
            except Exception as error:  # noqa: BLE001 - it must affect only its group
                scores = fault_of(self.name, error)
            else:
                scores, version = await assembly.score(group)
                replaced = self.serving is not None and self.serving is not assembly
                if replaced and not version and isinstance(scores, Abstention):
                    return await self.score(ctx)  # it waited for a model that never scored
                if assembly.looks_back and not isinstance(scores, Abstention):
                    self._remember(group, scores, assembly.model.recent)
        given, abstention = ((), scores) if isinstance(scores, Abstention) else (scores, None)
        return ScoreSheet(given, abstention, version, self._clock() - started)

    def _remember(self, group: PartInput, scores: Sequence[Score], limit: int) -> None:
        """Keep the trigrams of a group's winner, and those of the newest groups."""
        best = max(range(len(scores)), key=lambda place: (scores[place].reward, -place))
        self._recent[group.context.group_id] = group.readings[best].grams
        while len(self._recent) > limit:
            del self._recent[next(iter(self._recent))]

    # --- loading --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            await self._load_changes()

    def _stamp(self) -> Stamp:
        newest = self._pending or self.serving
        own = () if self.file is None else (self.file,)
        return stamp((*own, *(newest.files if newest else ())))

    async def _load_changes(self) -> None:
        """Load the files if they have changed, once two checks of them agree."""
        async with self._load_lock:
            current = await asyncio.to_thread(self._stamp)
            if current == self._loaded_stamp:
                return
            if self._watching:
                current = await settled(self._stamp, current)
            self._loaded_stamp = current
            running = (*_live(self._pending), *_live(self.serving))
            try:
                assembly = await asyncio.to_thread(self._assemble, running)
                await self._start([live for live in assembly.live_parts if live not in running])
            except Exception as error:  # noqa: BLE001 - the previous rewards stay in use
                fault = fault_of("model", error)
                self._fault = replace(fault, file=fault.file or str(self.file or ""))
                self._update_health()
                return
            self._fault = None
            own = () if self.file is None else current[:1]
            self._loaded_stamp = (*own, *assembly.stamp)
            self._adopt(assembly)

    def _assemble(self, reusable: Sequence[LivePart]) -> Assembly:
        file = self.file
        if file is None:
            model = self._model or default_model()
            folder = Path.cwd() if model.file is None else model.file.parent
            return Assembly(model, folder, self._environment, reusable)
        newest = self._pending or self.serving
        loaded = newest is not None and newest.model.file is not None
        if not file.exists() and loaded:
            raise ModelFault(
                str(file), 0, "", "the file is gone",
                "Restore it; for the built-in rewards restart the proxy without it",
            )  # fmt: skip
        missing = not file.exists() and not file.is_symlink()  # a broken link is a fault of it
        model = default_model() if missing and not self._required else load(file)
        return Assembly(model, file.parent, self._environment, reusable)

    def _adopt(self, assembly: Assembly) -> None:
        """Score with `assembly`: at once if its parts are ready, else as soon as they are."""
        superseded = self._pending
        self._pending = assembly
        if superseded is not None:
            self._retire(superseded)
        self._promote_pending()

    def _promote_pending(self) -> None:
        """Let the pending assembly score if it is ready; called when a part's health changes."""
        pending, old = self._pending, self.serving
        if pending is not None and (old is None or not old.version or pending.can_replace(old)):
            self.serving, self._pending = pending, None
            if old is not None:
                self._retire(old)
        self._update_health()

    def _update_health(self) -> None:
        fault, level, waiting_for = self._fault, "error", ""
        newest = self._pending or self.serving
        slow = newest.slow if newest is not None and fault is None else ()
        for name, part in slow:
            health = part.health()
            unproven = self._pending is not None and not getattr(part, "proven", True)
            if unproven or not health.ok:
                waiting_for = name if unproven or health.error is None else ""
                if health.error is not None:
                    setting = getattr(part, "faulty_setting", "")
                    level = health.level
                    fault = _with_place(health.error, newest, name, setting)
                break
        current = self.serving is not None and self._pending is None
        ok = fault is None and not waiting_for and current
        self._report(SourceHealth(ok, fault, self.version, level, waiting_for))

    def _retire(self, old: Assembly) -> None:
        """Close the slow parts that no assembly uses any more, once their groups are scored."""
        used = {*_live(self.serving), *_live(self._pending)}
        for live in old.live_parts:
            if live.slow and live not in used:
                self._tasks.spawn(self._close_idle(live), "retire")

    async def _close_idle(self, live: LivePart) -> None:
        users = {task for task in live.users if task is not None}
        if users and cast(SlowPart, live.part).health().version:
            await asyncio.wait(users, timeout=self._environment.seconds)
        await self._close(live)

    async def _start(self, new: Sequence[LivePart]) -> None:
        """Start the slow parts of a model; if one fails to start, close all of them."""
        parts = [(live, cast(SlowPart, live.part)) for live in new if live.slow]
        self._open |= {live for live, _ in parts}
        for live, part in parts:
            live.stop_listening = part.add_listener(lambda health: self._promote_pending())
        try:
            await run_all(*(part.start() for _, part in parts))
        except Exception:
            for live, _ in parts:
                await self._close(live)
            raise

    async def _close(self, live: LivePart) -> None:
        try:
            live.stop_listening()
            await cast(SlowPart, live.part).close()
        except Exception:  # another package's code: the other parts must still be closed
            log.exception("a part could not be closed")
        self._open.discard(live)


def _with_place(fault: Abstention, newest: Assembly | None, name: str, field: str) -> Abstention:
    """Return a part's fault with the place of the setting that causes it, if one does."""
    spec = newest.model.named(name) if newest is not None else None
    if not field or fault.file or newest is None or spec is None or newest.model.file is None:
        return fault
    line = spec.lines.get(field, spec.line)
    cause = f"parts.{name}.{field}: {fault.cause}"
    return replace(fault, cause=cause, file=str(newest.model.file), line=line)


def _live(assembly: Assembly | None) -> list[LivePart]:
    return assembly.live_parts if assembly else []


# --- commands -------------------------------------------------------------------------------------

Value = float | bool
Change = tuple[str, str, Value]
"""Part, field, value."""


def parts_of(source: RewardSource) -> tuple[RewardPart, ...]:
    """Return the parts that the rewards consist of."""
    return source.parts() if isinstance(source, ComposedSource) else ()


def kind_of(source: RewardSource, name: str) -> str:
    """Return the kind of a part of the newest rewards; empty if no part has that name."""
    return source.kind_of(name) if isinstance(source, ComposedSource) else ""


def _without_effect(part: RewardPart | None) -> str:
    """Return why the weight of a part has no effect: it is a gate, or off. Empty if it has one."""
    if part is not None and part.gate:
        return " (ignored while it is a gate)"
    return " (ignored while it is off)" if part is not None and not part.enabled else ""


class RewardCommands:
    """Commands that change parts: they write the model's file and load it again.

    Args:
        source: The reward source in use.
    """

    def __init__(self, source: RewardSource) -> None:
        self._source = source
        self._lock = asyncio.Lock()
        self.table: Mapping[str, Callable[..., Awaitable[str]]] = {
            "rewards.weight": self.weight,
            "rewards.gate": self.gate,
            "rewards.enable": self.enable,
        }

    async def weight(self, part: str, weight: float) -> str:
        """Set a part's weight, or its share where it has one.

        Raises:
            AjetError: the weight cannot be set; gives the reason.
        """
        return await self.weights({part: weight})

    async def weights(self, weights: Mapping[str, float]) -> str:
        """Set the weights or shares of several parts in one step: one new version, or none.

        Raises:
            AjetError: one of them cannot be set; gives the reason.
        """
        known = {part.name: part for part in parts_of(self._source)}
        summary = ", ".join(
            f"{name} has weight {weight:g}{_without_effect(known.get(name))}"
            for name, weight in weights.items()
        )
        changes = [(part, "weight", value) for part, value in weights.items()]
        return await self._set(changes, summary)

    async def gate(self, part: str, on: bool) -> str:
        """Make a part a gate, or a summand again."""
        summary = f"{part} is {'a gate' if on else 'no gate'}"
        return await self._set([(part, "gate", on)], summary)

    async def enable(self, part: str, on: bool) -> str:
        """Switch a part on or off."""
        return await self._set([(part, "enabled", on)], f"{part} is {'on' if on else 'off'}")

    async def _set(self, changes: Sequence[Change], summary: str) -> str:
        source = self._source
        if not isinstance(source, ComposedSource) or source.file is None:
            raise AjetError(
                "a hook folder alone makes the reward",
                todo="Leave --hooks out and name the folder in rewards.yaml: "
                "`mine: {kind: hook, folder: DIR}`",
            )
        async with self._lock:
            await asyncio.to_thread(change, source.file, changes)
            await source.reload()
        health = source.health()
        if not health.ok:
            why = health.error.cause if health.error else "its parts are starting"
            return f"written to {source.file}, but not loaded: {why}"
        return f"{summary}: it applies from the next group, version {source.version}"


def change(file: Path, changes: Sequence[Change]) -> RewardModel:
    """Set fields of parts in one step and save the file, or change nothing.

    A file that does not exist yet is created from the built-in model.

    Args:
        file: File of the model.
        changes: Part, field and value of each change.

    Returns:
        The model after the changes.

    Raises:
        ModelFault: the file is invalid now, or would be after the changes.
        AjetError: there is no such part, or the file cannot be written.
    """
    text = read(file) if file.exists() else DEFAULT_TEXT
    model = parse(text, file)
    requested = [_change(model, file, *wanted) for wanted in changes]
    for wanted in requested:
        text = edited(text, *wanted)
    changed = parse(text, file)
    for part, field, value in requested:
        spec = changed.named(part)
        if spec is None or abs(getattr(spec, field) - value) > 1e-6:
            raise AjetError(
                f"`{part}` cannot be changed from here", str(file),
                "Edit the file: it uses an alias",
            )  # fmt: skip
    edit.write(file, text, "the rewards")
    return changed


def _change(model: RewardModel, file: Path, part: str, field: str, value: Value) -> Change:
    """Return the change to write; a part with a share has no weight of its own."""
    spec = model.named(part)
    if spec is None:
        names = ", ".join(part.name for part in model.parts)
        raise AjetError(
            f"the rewards have no part `{part:.40}`",
            str(file),
            f"{did_you_mean(part, names.split(', '))} There are: {names}".strip(),
        )
    if field == "weight" and spec.share is not None:
        field = "share"
    return part, field, value


def edited(text: str, part: str, field: str, value: Value) -> str:
    """Return `text` with one field of one part set.

    Raises:
        AjetError: the field is in a place where it cannot be edited.
    """
    parts = dict(named_nodes(compose(text)))["parts"]
    node = dict(named_nodes(parts))[part]
    if sum(other is node for _, other in named_nodes(parts)) > 1:
        raise AjetError(f"`{part}` is an alias of another part", todo="Edit the file")
    return edit.put(text, ("parts", part, field), _literal(value))


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6f}".rstrip("0").rstrip(".")
