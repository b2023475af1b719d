"""Takes the looks of one server: when they are due, and what they are compared with."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.commands.refusal import NotNow
from core.events import (
    LookAdvanced,
    LookEnded,
    LookStarted,
    ProbePrompt,
    ProbeSetLoaded,
)
from core.events.progress import LookRole
from core.state import Look, Progress, Server
from proxy.context import ProxyContext, ServerHandle
from proxy.evaluation.archive import LookArchive, StoredLook
from proxy.evaluation.checkpoints import save
from proxy.evaluation.looks import (
    Baseline,
    LookPlan,
    SampleFailed,
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
    with_prompts,
    write_prompts,
)
from proxy.evaluation.reaction import Reaction
from proxy.evaluation.rolling import RollingPhases
from proxy.evaluation.sampling import LookCut, RollingEnded, UserWaits, open_sampler
from proxy.evaluation.saved_weights import saved_weights
from proxy.evaluation.scoring import LookScorer, ScoringError
from proxy.held_out import key_of
from proxy.servers.extensions import CHECKPOINTS, offers
from proxy.servers.facts import ROLLING, ServerFacts
from proxy.servers.reader import identified

log = logging.getLogger(__name__)

CHECK_EVERY = 0.5
"""Seconds between two checks whether a look is due."""
ADVANCE_EVERY = 0.5
"""Minimum seconds between two events about the progress of a look."""
NO_PROBE_SET = "no probe set: set `probe.file` to a JSONL file of held-out prompts"

Demand = Literal["look", "baseline"]


class ProgressService:
    """The looks at the probe set of one server.

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
        self._archive = LookArchive(home)
        self._own_file = home / OWN_FILE
        self.pairs = PairRating(context, server.name, self._archive)
        self._probe_set: ProbeSet | None = None
        self._demand: Demand | None = None
        self._wake = asyncio.Event()
        self._next_at = 0.0
        """Time on the loop's clock before which no look begins without a command."""
        self._last: tuple[int, int | None] = 0, None
        """Training run and step of the last look, complete or not."""
        self._run = 0
        """Training run of the look in progress; 0 if unknown."""
        self._samples: StoredLook | None = None
        """Samples of the baseline in use; read from its file after a restart."""
        self._checkpoint = ""
        """Name of the checkpoint that the look in progress has saved."""
        self._model = ""
        """Model that the server reported for the look in progress."""
        self._role: LookRole = "look"
        """Role of the look in progress."""
        self._phases = RollingPhases(self._settings.samples)
        self.reaction = Reaction(context, server, self._wake)

    # --- probe set and commands -----------------------------------------------------------------

    async def load(self) -> None:
        """Load the probe set: from now on its prompts are not trained on. Continue a pause."""
        self.server.paused = self._progress.paused
        self.reaction.alert_of_pause()
        error = ""
        try:
            if file := self._settings.file or self._existing_own_file():
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
                enabled=self._settings.enabled,
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

    def _existing_own_file(self) -> str:
        return str(self._own_file) if self._own_file.exists() else ""

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
        prompts = [one for one in prompts if key_of(one) not in known]
        if not prompts:
            return "the prompt is in the probe set already"
        combined = with_prompts(self._probe_set, prompts)
        await asyncio.to_thread(write_prompts, self._own_file, combined)
        await self.load()
        self._wake.set()
        added = f"{len(prompts)} prompt{'' if len(prompts) == 1 else 's'}"
        return f"{added} added to the probe set, {len(combined)} now; a new comparison begins"

    def demand(self, demand: Demand) -> str:
        """Take a look, or a new baseline, as soon as the engine rolls; return a message."""
        if self._demand != "baseline":
            self._demand = demand
        self._wake.set()
        what = "a look" if demand == "look" else "a new baseline"
        rolls = self.server.watcher.current.is_in(ROLLING)
        return f"{what} at {self.server.name} begins{'' if rolls else ' when the engine rolls'}"

    # --- when -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take looks until cancelled; without a probe set, from the first pinned prompt on."""
        if not self._settings.enabled:
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
                    await self._look(self._probe_set)
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

    # --- one look -------------------------------------------------------------------------------

    async def _look(self, probe_set: ProbeSet) -> None:
        """Take one look and publish how it ended."""
        demand, self._demand = self._demand, None
        loop = asyncio.get_running_loop()
        began = loop.time()
        plan = LookPlan(
            look_id=self.context.runtime.chance.token(6),
            server=self.server.name,
            role="look",
            probe_set=probe_set,
            samples=self._phases.samples,
            bounds=(self._settings.reward_low, self._settings.reward_high),
        )
        await identified(self.server)
        step = self.server.watcher.current.step
        self._run = self._run_number
        self._last = self._run, step
        self._checkpoint, self._role = "", "look"
        ended = LookEnded(
            server=plan.server, look_id=plan.look_id, role="look", outcome="failed",
            step=step, run=self._run, probe_set=probe_set.version,
        )  # fmt: skip
        try:
            ended = await self._measure(plan, demand)
        except RollingEnded as cut:
            cause = f"{cut.what}; {self._phases.cut()}"
            ended = replace(ended, outcome="cut", cause=cause)
        except LookCut as cut:
            ended = replace(ended, outcome="cut", cause=cut.what)
        except (SampleFailed, ScoringError) as error:
            ended = replace(ended, cause=str(error))
        except asyncio.CancelledError:
            ended = replace(ended, outcome="cut", cause="the proxy stopped")
            raise
        except Exception as error:  # a fault of one look must not end all later ones
            log.exception("the look at %s failed", self.server.name)
            ended = replace(ended, cause=f"internal error: {type(error).__name__}: {error}")
        finally:
            seconds = loop.time() - began
            self._next_at = loop.time() + seconds * (1.0 / self._settings.share - 1.0)
            if ended.outcome == "cut" and self._demand is None:
                self._demand = demand  # what the operator demanded is taken at a later step
            ended = replace(ended, role=self._role, seconds=seconds, checkpoint=self._checkpoint)
            self._publish(ended)
        await self.reaction.take(ended)

    def _publish(self, ended: LookEnded) -> None:
        """Publish the end of a look; a new baseline is named in the log."""
        self.context.bus.publish(ended)
        if ended.role == "baseline" and ended.outcome == "complete":
            why = f": {ended.restarted}" if ended.restarted else ""
            step = "this baseline" if ended.step is None else f"step {ended.step}"
            log.info("%s: verdicts compare with %s from now on%s", self.server.name, step, why)
            self.reaction.clear_alerts("a new baseline was taken")

    async def _measure(self, plan: LookPlan, demand: Demand | None) -> LookEnded:
        """Return the event of a complete look.

        Raises:
            LookCut, SampleFailed, ScoringError: It cannot be completed.
        """
        settings = self.context.settings
        self._model = await self._reported_model()
        scorer = LookScorer(self.context.rewards, settings.reward_limit, self._settings.judges)
        baseline, restarted = await self._comparison(plan, scorer, demand)
        if baseline is None:
            plan = plan.as_baseline()
            self._role = "baseline"
        sampler = await open_sampler(
            self.server, self._facts, self._user_waits, self.context.runtime.chance
        )
        plan = plan.sampling(plan.samples or sampler.usual)
        self._phases.begin(len(plan.probe_set.prompts), plan.samples)
        try:
            self._checkpoint = await save(self.context, self.server, self._progress, sampler.step)
            self.context.bus.publish(
                LookStarted(
                    server=plan.server,
                    look_id=plan.look_id,
                    role=plan.role,
                    step=sampler.step,
                    run=self._run,
                    samples=len(plan.probe_set.prompts) * plan.samples,
                )
            )
            stored = await take_samples(
                plan, sampler, scorer, self._advancer(plan), self.context.clock
            )
        finally:
            await sampler.close()
        self._phases.complete()
        file = await asyncio.to_thread(self._archive.write, stored, self._baseline_file)
        if plan.role == "baseline":
            self._samples = stored
        ended = await conclude(plan, stored, scorer, baseline, file=file, restarted=restarted)
        saved_as = await self._saved_as(stored.step)
        return replace(ended, run=self._run, model=self._model, saved_as=saved_as)

    async def _saved_as(self, step: int | None) -> str:
        """Return where a server given by URL has the weights of a step; empty if unknown."""
        try:
            if await offers(self.server, CHECKPOINTS):
                return ""
        except AjetError:
            return ""
        return saved_weights(self._server_state, self._model, step)

    def _advancer(self, plan: LookPlan) -> Callable[[int], None]:
        """Return a function that publishes the number of answers so far, not too often."""
        loop = asyncio.get_running_loop()
        published = loop.time()

        def advance(done: int) -> None:
            nonlocal published
            self._phases.done = done
            if loop.time() - published >= ADVANCE_EVERY:
                published = loop.time()
                self.context.bus.publish(
                    LookAdvanced(server=plan.server, look_id=plan.look_id, done=done)
                )

        return advance

    # --- what it is compared with ---------------------------------------------------------------

    @property
    def _progress(self) -> Progress:
        return self.context.bus.state.progress.get(self.server.name) or Progress()

    @property
    def _baseline_file(self) -> str:
        baseline = self._progress.baseline
        return baseline.file if baseline is not None else ""

    async def _reported_model(self) -> str:
        """Return the model that the server reports now; empty if it reports none.

        The watcher's last reading may be of the engine's previous run.
        """
        try:
            pool = await self.server.client.pool()
        except AjetError:
            pool = self.server.watcher.pool
        return pool.training_model_path or "" if pool is not None else ""

    @property
    def _run_number(self) -> int:
        """Number of the training run of the present weights; 0 if unknown."""
        server = self._server_state
        return 0 if server is None else server.run_number

    @property
    def _server_state(self) -> Server | None:
        return self.context.bus.state.servers.get(self.server.name)

    async def _comparison(
        self, plan: LookPlan, scorer: LookScorer, demand: Demand | None
    ) -> tuple[Baseline | None, str]:
        """Return the baseline of the next look, or None and why a new one is taken."""
        look = self._progress.baseline
        if look is None:
            return None, ""
        if demand == "baseline":
            return None, "requested by the operator"
        if look.probe_set != plan.probe_set.version:
            return None, "the probe set changed"
        if cause := self._other_weights(look):
            return None, cause
        stored = self._samples
        if stored is None or stored.look_id != look.look_id:
            stored = await asyncio.to_thread(self._archive.read, look.file)
        if stored is None:
            return None, "the samples of the baseline cannot be read"
        if (look.reward, look.mode) != (scorer.version, scorer.mode):
            return await self._rescored(plan, stored, scorer, look), ""
        self._samples = stored
        current = self._progress.current
        verdict = current.verdict if current is not None else None
        looks = 0 if verdict is None else verdict.look
        return Baseline(look.look_id, stored, looks, self._progress.best_rewards), ""

    def _other_weights(self, baseline: Look) -> str:
        """Return why the present weights do not continue those of the baseline; empty if they do,
        as far as the server reports."""
        if self._runs_rewound_model(baseline):
            return ""
        if self._model and baseline.model and self._model != baseline.model:
            return "the engine trains another model: not comparable"
        server = self._server_state
        step = self.server.watcher.current.step or 0
        if server is None or not self._began_again(server, baseline):
            return ""
        if step < (baseline.step or 0):
            return (
                f"the engine was started again at step {step}, before step {baseline.step} of the"
                " baseline: not comparable"
            )
        if self._run and baseline.run and not _same_experiment(server, baseline.run):
            return f"the engine has other weights, of training run {self._run}: not comparable"
        return ""

    def _began_again(self, server: Server, baseline: Look) -> bool:
        """Return whether the weights are of another training run than those of the baseline; of
        another start of the engine where a run is unknown."""
        if self._run and baseline.run:
            return self._run != baseline.run
        return server.engine_run != baseline.engine_run

    def _runs_rewound_model(self, baseline: Look) -> bool:
        """Return whether the engine trains the weights of a rewind to a step that was verified
        against this baseline."""
        rewound, server = self._progress.rewound, self._server_state
        if rewound is None or rewound.baseline_id != baseline.look_id:
            return False
        if not rewound.model:
            run = server.training_run if server is not None else None
            return run is not None and run.start == rewound.restored
        return rewound.model == (self._model or saved_weights(server, "", 1))

    async def _rescored(
        self, plan: LookPlan, stored: StoredLook, scorer: LookScorer, look: Look
    ) -> Baseline:
        """Begin a new comparison: the samples of the baseline are scored by the present reward."""
        plan = plan.as_baseline(self.context.runtime.chance.token(6))
        stored = await rescored(plan, stored, scorer)
        file = await asyncio.to_thread(self._archive.write, stored, self._baseline_file)
        ended = await conclude(
            plan, stored, scorer, None, file=file, restarted="the reward changed"
        )
        model = self._model if self._runs_rewound_model(look) else look.model
        ended = replace(
            ended, run=look.run, model=model, checkpoint=look.checkpoint, saved_as=look.saved_as
        )
        self._publish(ended)
        self._samples = stored
        return Baseline(plan.look_id, stored, 0)


def _same_experiment(server: Server, run: int) -> bool:
    """Return whether the present training run continues the experiment of an earlier one.

    A trainer resumes the newest save of its experiment. The embedded engine keeps the run then, and
    its names have no experiment.
    """
    names = {one.number: one.name.rpartition(".")[0] for one in server.runs}
    experiment = names.get(run, "")
    return bool(experiment) and experiment == names.get(server.run_number)


class Evaluation:
    """The looks at all servers of a proxy.

    Args:
        services: By server name, the default server first.
    """

    def __init__(self, services: dict[str, ProgressService]) -> None:
        self.services = services
        self._tasks = Tasks("evaluation")

    async def start(self) -> None:
        """Load the probe sets and begin to take looks."""
        for name, service in self.services.items():
            await service.load()
            run = service.context.keep_running(service.run, f"progress of {name}")
            self._tasks.spawn(run, name)

    async def close(self) -> None:
        """End all looks and give their episodes back."""
        await self._tasks.close()
