"""Takes the measurements of one server: when they are due, and what they are compared with."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.commands.spec import NotNow
from core.events import LookAdvanced, LookEnded, LookStarted, ProbePrompt, ProbeSetLoaded, Rewound
from core.events.progress import LookRole
from core.state import Progress, Server
from core.state.common import record_of
from proxy.context import ProxyContext, ServerHandle
from proxy.evaluation.measurement import (
    Attempt,
    Baseline,
    Measurement,
    SampleArchive,
    conclude,
    rescored,
    take_samples,
)
from proxy.evaluation.pairs import PairRating
from proxy.evaluation.probe_set import (
    OWN_FILE,
    ProbeSet,
    ProbeSetError,
    load_probe_set,
    shipped_probe_set,
    write_prompts,
)
from proxy.evaluation.reaction import Reaction
from proxy.evaluation.sampling import (
    MeasurementCut,
    RollingEnded,
    SampleSize,
    UserWaits,
    open_sampler,
)
from proxy.evaluation.saved_weights import save_checkpoint, saved_weights
from proxy.evaluation.scoring import NoVerdict, ProbeScorer
from proxy.held_out import key_of
from proxy.servers.extensions import CHECKPOINTS, offers
from proxy.servers.facts import ROLLING, ServerFacts, identified

log = logging.getLogger(__name__)

CHECK_EVERY = 0.5
"""Seconds between two checks whether a measurement is due."""
ADVANCE_EVERY = 0.5
"""Minimum seconds between two events about the progress of a measurement."""
NO_PROBE_SET = "no probe set: set `probe.file` to a JSONL file of held-out prompts"

Demand = Literal["look", "baseline"]


class MeasurementService:
    """The measurements of one server.

    Args:
        context: The shared parts of the proxy.
        server: The server; its watcher runs.
        facts: Its facts.
        home: Home folder, where the samples are stored.
        shipped: Whether the shipped probe set is used without `probe.file` at any server; else it
            is at an embedded engine, as soon as one answers.
        user_waits: Returns whether a user's request waits for episodes.
    """

    def __init__(
        self,
        context: ProxyContext,
        server: ServerHandle,
        facts: ServerFacts,
        home: Path,
        *,
        shipped: bool,
        user_waits: UserWaits,
    ) -> None:
        self.context = context
        self.server = server
        self._settings = context.settings.probe
        self._facts = facts
        self._shipped = True if shipped else None
        """Whether the shipped probe set is used; None until it is known whether the server is an
        embedded engine."""
        self._user_waits = user_waits
        self._archive = SampleArchive(home)
        self._own_file = home / OWN_FILE
        self._probe_set: ProbeSet | None = None
        self._demand: Demand | None = None
        self._wake = asyncio.Event()
        self._next_at = 0.0
        """Time on the loop's clock before which none begins without a command."""
        self._advanced_at = 0.0
        """When an event about progress was published last, on the loop's clock."""
        self._last: tuple[int, int | None] = 0, None
        """Training run and step of the last measurement, complete or not."""
        self._samples: Measurement | None = None
        """Samples of the baseline in use; read from its file after a restart."""
        self._size = SampleSize(self._settings.samples)
        self.pairs = PairRating(context, server.name, self._archive)
        self.reaction = Reaction(context, server, self._wake)

    # --- probe set and commands -----------------------------------------------------------------

    async def load(self) -> None:
        """Load the probe set: from now on its prompts are not trained on. Continue a pause."""
        self.server.paused = self._progress.paused
        self.reaction.alert_of_pause()
        own = str(self._own_file) if self._own_file.exists() else ""
        error = ""
        try:
            if file := self._settings.file or own:
                self._probe_set = await asyncio.to_thread(load_probe_set, file)
            elif self._shipped:
                self._probe_set = shipped_probe_set()
            else:
                error = NO_PROBE_SET
        except ProbeSetError as fault:
            error = str(fault)
            log.warning("%s has no probe set: %s", self.server.name, fault)
        probe_set = self._probe_set or ProbeSet("", ())
        self.context.held_out.replace(self.server.name, probe_set.prompts)
        self.context.bus.publish(
            ProbeSetLoaded(
                server=self.server.name,
                source=probe_set.source,
                version=probe_set.version if probe_set.prompts else "",
                prompts=probe_set.prompts,
                error=error,
                enabled=self._settings.share > 0,
            )
        )

    async def _load_shipped(self) -> None:
        """Use the shipped probe set if the server, named by its URL, is an embedded engine."""
        if self._settings.file or not self.server.watcher.current.is_in(ROLLING):
            return
        with contextlib.suppress(AjetError):  # asked again at the next check
            self._shipped = await self.server.client.is_embedded()
        if self._shipped:
            await self.load()

    async def pin(self, prompts: Sequence[ProbePrompt]) -> str:
        """Add prompts to the probe set in use, in a file of the home; return a message.

        Raises:
            AjetError: The probe set is a file of the settings, or the file cannot be written;
                nothing changed.
        """
        if self._settings.file:
            raise NotNow(
                "the probe set is a file of yours", self._settings.file, "Add the prompts there"
            )
        known = set() if self._probe_set is None else set(map(key_of, self._probe_set.prompts))
        prompts = [prompt for prompt in prompts if key_of(prompt) not in known]
        if not prompts:
            return "the prompt is in the probe set already"
        combined = (*(self._probe_set.prompts if self._probe_set is not None else ()), *prompts)
        await asyncio.to_thread(write_prompts, self._own_file, combined)
        await self.load()
        self._wake.set()
        added = f"{len(prompts)} prompt{'' if len(prompts) == 1 else 's'}"
        return f"{added} added to the probe set, {len(combined)} now; a new comparison begins"

    def demand(self, demand: Demand) -> str:
        """Measure, or take a new baseline, as soon as the engine rolls; return a message."""
        if self._demand != "baseline":
            self._demand = demand
        self._wake.set()
        what = "a look" if demand == "look" else "a new baseline"
        rolls = self.server.watcher.current.is_in(ROLLING)
        return f"{what} at {self.server.name} begins{'' if rolls else ' when the engine rolls'}"

    # --- when -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Measure until cancelled; without a probe set, from the first pinned prompt on."""
        if not self._settings.share:
            return
        remove = self.server.watcher.add_listener(self._on_status)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_EVERY):
                        await self._wake.wait()
                self._wake.clear()
                if self._probe_set is None and self._shipped is None:
                    await self._load_shipped()
                if self._probe_set is not None and self._due():
                    await self._measure(self._probe_set)
        finally:
            remove()

    def _on_status(self, status: ServerStatus) -> None:
        self._wake.set()

    def _due(self) -> bool:
        status = self.server.watcher.current
        if (
            not status.is_in(ROLLING)
            or self.reaction.rewinding
            or self._facts.recovering
            or not self.context.rewards.version
        ):
            return False
        if self._demand is not None:
            return True
        if status.step is None or asyncio.get_running_loop().time() < self._next_at:
            return False
        run, last = self._last
        known = self._run_number
        if last is None or (run and known and run != known):
            return True
        return not last <= status.step < last + self._settings.every

    # --- one measurement ------------------------------------------------------------------------

    async def _measure(self, probe_set: ProbeSet) -> None:
        """Take one measurement and publish how it ended."""
        demand, self._demand = self._demand, None
        loop = asyncio.get_running_loop()
        began = loop.time()
        await identified(self.server)
        step = self.server.watcher.current.step
        self._last = self._run_number, step
        attempt = self._attempt("look", probe_set, step=step, run=self._run_number)
        try:
            await self._complete(attempt, demand)
        except MeasurementCut as cut:
            size = f"; {self._size.cut()}" if isinstance(cut, RollingEnded) else ""
            attempt.note(outcome="cut", cause=f"{cut.what}{size}")
        except NoVerdict as error:
            attempt.note(cause=str(error))
        except asyncio.CancelledError:
            attempt.note(outcome="cut", cause="the proxy stopped")
            raise
        except Exception as error:  # a fault of one measurement must not end all later ones
            log.exception("the look at %s failed", self.server.name)
            attempt.note(cause=f"internal error: {type(error).__name__}: {error}")
        finally:
            seconds = loop.time() - began
            self._next_at = loop.time() + seconds * (1.0 / self._settings.share - 1.0)
            if attempt.ended.outcome == "cut" and self._demand is None:
                self._demand = demand  # what the operator demanded is taken at a later step
            attempt.note(seconds=seconds)
            self._publish(attempt.ended)
        await self.reaction.take(attempt.ended)

    def _publish(self, ended: LookEnded) -> None:
        """Publish the end of a measurement; a new baseline is named in the log."""
        self.context.bus.publish(ended)
        if ended.role == "baseline" and ended.outcome == "complete":
            why = f": {ended.restarted}" if ended.restarted else ""
            step = "this baseline" if ended.step is None else f"step {ended.step}"
            log.info("%s: verdicts compare with %s from now on%s", self.server.name, step, why)
            self.reaction.clear_alerts("a new baseline was taken")

    def _attempt(self, role: LookRole, probe_set: ProbeSet, **fields: Any) -> Attempt:
        """Return a measurement that has not ended; it failed unless it is concluded."""
        rating, look_id = self.context.settings.rating, self.context.runtime.chance.token(6)
        fields |= {"server": self.server.name, "look_id": look_id, "probe_set": probe_set.version}
        ended = LookEnded(role=role, outcome="failed", **fields)
        return Attempt(ended, probe_set, (rating.score_low, rating.score_high))

    async def _complete(self, attempt: Attempt, demand: Demand | None) -> None:
        """Take a whole measurement.

        Raises:
            MeasurementCut, NoVerdict: It cannot be completed.
        """
        context, settings, prompts = self.context, self._settings, attempt.probe_set.prompts
        attempt.note(model=await self._reported_model())
        scorer = ProbeScorer(context.rewards, context.settings.reward_limit, settings.judges)
        baseline, restarted = await self._comparison(attempt, scorer, demand)
        attempt.note(role="look" if baseline is not None else "baseline")
        chance = context.runtime.chance
        sampler = await open_sampler(self.server, self._facts, self._user_waits, chance)
        attempt.samples = self._size.samples or sampler.usual
        self._size.begin(len(prompts), attempt.samples)
        try:
            saved = await save_checkpoint(context, self.server, self._progress, sampler.step)
            attempt.note(checkpoint=saved)
            ended, samples = attempt.ended, len(prompts) * attempt.samples
            context.bus.publish(record_of(LookStarted, ended, step=sampler.step, samples=samples))
            self._advanced_at = asyncio.get_running_loop().time()
            advance = partial(self._advance, ended.look_id)
            measured = await take_samples(attempt, sampler, scorer, advance, context.clock)
        finally:
            await sampler.close()
        self._size.complete()
        file = await self._store(measured)
        if baseline is None:
            self._samples = measured
        saved_as = await self._saved_as(attempt.ended.model, measured.step)
        await conclude(attempt, measured, scorer, baseline)
        attempt.note(file=file, restarted=restarted, saved_as=saved_as)

    async def _store(self, measured: Measurement) -> str:
        """Write a measurement to its file; return its name."""
        baseline = self._progress.baseline
        kept = baseline.file if baseline is not None else ""
        return await asyncio.to_thread(self._archive.write, measured, kept)

    async def _saved_as(self, model: str, step: int | None) -> str:
        """Return where a server given by URL has the weights of a step; empty if unknown."""
        with contextlib.suppress(AjetError):
            if not await offers(self.server, CHECKPOINTS):
                return saved_weights(self._server_state, model, step)
        return ""

    def _advance(self, look_id: str, done: int) -> None:
        """Publish the number of answers so far, not too often."""
        self._size.done = done
        now = asyncio.get_running_loop().time()
        if now - self._advanced_at >= ADVANCE_EVERY:
            self._advanced_at = now
            event = LookAdvanced(server=self.server.name, look_id=look_id, done=done)
            self.context.bus.publish(event)

    # --- what it is compared with ---------------------------------------------------------------

    @property
    def _progress(self) -> Progress:
        return self.context.bus.state.progress.get(self.server.name) or Progress()

    @property
    def _server_state(self) -> Server | None:
        return self.context.bus.state.servers.get(self.server.name)

    @property
    def _run_number(self) -> int:
        """Number of the training run of the present weights; 0 if unknown."""
        return self.context.bus.state.run_of(self.server.name)

    async def _reported_model(self) -> str:
        """Return the model that the server reports now; empty if it reports none.

        The watcher's last reading may be of the engine's previous run.
        """
        try:
            pool = await self.server.client.pool()
        except AjetError:
            pool = self.server.watcher.pool
        return pool.training_model_path or "" if pool is not None else ""

    async def _comparison(
        self, attempt: Attempt, scorer: ProbeScorer, demand: Demand | None
    ) -> tuple[Baseline | None, str]:
        """Return the baseline of the next measurement, or None and why a new one is taken."""
        progress, server, model = self._progress, self._server_state, attempt.ended.model
        look = progress.baseline
        if look is None:
            return None, ""
        if demand == "baseline":
            return None, "requested by the operator"
        if look.probe_set != attempt.ended.probe_set:
            return None, "the probe set changed"
        rewound = _runs_rewound(progress.rewound, look, server, model)
        step = self.server.watcher.current.step or 0
        if not rewound and (other := _other_weights(look, server, model, attempt.ended.run, step)):
            return None, other
        samples = self._samples
        if samples is None or samples.look_id != look.look_id:
            samples = await asyncio.to_thread(self._archive.read, look.file)
        if samples is None:
            return None, "the samples of the baseline cannot be read"
        self._samples = samples
        if (look.reward, look.mode) != (scorer.version, scorer.mode):
            kept = {"run": look.run, "checkpoint": look.checkpoint, "saved_as": look.saved_as}
            model = model if rewound else look.model
            again = self._attempt("baseline", attempt.probe_set, model=model, **kept)
            self._samples = await self._rescored(again, samples, scorer)
            return Baseline(self._samples, 0), ""
        current = progress.current
        verdict = current.verdict if current is not None else None
        looks = 0 if verdict is None else verdict.look
        return Baseline(samples, looks, progress.best_rewards), ""

    async def _rescored(
        self, attempt: Attempt, samples: Measurement, scorer: ProbeScorer
    ) -> Measurement:
        """Begin a new comparison: the samples of the baseline are scored by the present reward."""
        samples = await rescored(attempt, samples, scorer)
        file = await self._store(samples)
        await conclude(attempt, samples, scorer, None)
        attempt.note(file=file, restarted="the reward changed")
        self._publish(attempt.ended)
        return samples


def _other_weights(
    baseline: LookEnded, server: Server | None, model: str, run: int, step: int
) -> str:
    """Return why the present weights do not continue those of the baseline; empty if they do, as
    far as the server reports."""
    if model and baseline.model and model != baseline.model:
        return "the engine trains another model: not comparable"
    runs_known = bool(run and baseline.run)
    if server is None or (
        run == baseline.run if runs_known else server.engine_run == baseline.engine_run
    ):
        return ""
    if step < (baseline.step or 0):
        return (
            f"the engine was started again at step {step}, before step {baseline.step} of the"
            " baseline: not comparable"
        )
    if runs_known and not _same_experiment(server, baseline.run):
        return f"the engine has other weights, of training run {run}: not comparable"
    return ""


def _runs_rewound(
    rewound: Rewound | None, baseline: LookEnded, server: Server | None, model: str
) -> bool:
    """Return whether the engine trains the weights of a rewind to a step that was verified against
    this baseline."""
    if rewound is None or rewound.baseline_id != baseline.look_id:
        return False
    if not rewound.model:
        run = server.training_run if server is not None else None
        return run is not None and run.start == rewound.restored
    return rewound.model == (model or saved_weights(server, "", 1))


def _same_experiment(server: Server, run: int) -> bool:
    """Return whether the present training run continues the experiment of an earlier one.

    A trainer resumes the newest save of its experiment. The embedded engine keeps the run then, and
    its names have no experiment.
    """
    names = {known.number: known.name.rpartition(".")[0] for known in server.runs}
    experiment = names.get(run, "")
    return bool(experiment) and experiment == names.get(server.run_number)


class Evaluation:
    """The measurements of all servers of a proxy.

    Args:
        services: By server name, the default server first.
    """

    def __init__(self, services: dict[str, MeasurementService]) -> None:
        self.services = services
        self._tasks = Tasks("evaluation")

    async def start(self) -> None:
        """Load the probe sets and begin to measure."""
        for name, service in self.services.items():
            await service.load()
            run = service.context.keep_running(service.run, f"progress of {name}")
            self._tasks.spawn(run, name)

    async def close(self) -> None:
        """End all measurements and give their episodes back."""
        await self._tasks.close()
