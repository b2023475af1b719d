"""Canary of weight syncs: do log-probs of fixed prompts change when an update is synced?

Each step gets two readings, so that the noise of a server is known: of two readings by the same
weights, and of the first reading by the next ones. A server that returns no log-probs gives no
result; it is asked once in each training run.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ajet_swarm.api.outcomes import ChatAnswer, Claimed
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.errors import ChatError
from core.events import WeightSyncChecked
from core.events.alerts import params_of
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.evaluation.episodes import EvalEpisodes, NotGranted
from proxy.servers.facts import ROLLING, ServerFacts

log = logging.getLogger(__name__)

PROMPTS = (
    "Name a colour.",
    "Name an animal.",
    "Say a number.",
    "Name a city.",
    "Is it warm today?",
    "Tell me a word.",
    "What should I eat?",
    "Who are you?",
)
TOP = 5
"""Number of likely tokens whose log-probs are requested."""
MIN_TOKENS = 6
"""Minimum number of log-probs that all three readings have."""
SAME_WITHIN = 1e-5
"""Noise in nats that is assumed at least: sums in another order differ by less."""
NOISE_LIMIT = 1e-4
"""Noise in nats above which a small update could be hidden, so that nothing is called unchanged."""
RATIO = 20.0
"""Change by noise, as variances, from which the weights have changed. With equal weights the ratio
of six log-probs each is larger in one of a thousand syncs (F distribution)."""
IDLE_LIMIT = 60.0
"""Seconds after which a server takes back the eval episode of a killed proxy."""
CALL_LIMIT = 30.0
"""Seconds that one answer may take."""
CHECK_EVERY = 0.5
"""Seconds between two checks whether a reading is due."""

Reading = Mapping[tuple[int, str], float]
"""Log-prob of the first token of an answer, by prompt and token."""
Outcome = Literal["changed", "unchanged", "unknown"]
Measure = Callable[[], Awaitable[Reading | None]]
"""Return one reading; None if the server returns no log-probs.

Raises:
    Interrupted: There is no reading now.
"""
HIDDEN = "the server returns no log-probs"


class Interrupted(Exception):
    """A reading was not taken: a user waits, no episode is free, or the engine does not roll."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What the readings before and after a weight sync say."""

    outcome: Outcome
    cause: str = ""
    """Why the outcome is unknown."""
    change: float = 0.0
    noise: float = 0.0
    """Change across the sync and between two readings, in nats; equal if nothing changed."""


def compare(first: Reading, second: Reading, after: Reading) -> SyncResult:
    """Compare two readings before a weight sync with one after it."""
    common = [key for key in first if key in second and key in after]
    if len(common) < MIN_TOKENS:
        if len(after) >= MIN_TOKENS and len(first.keys() & second.keys()) >= MIN_TOKENS:
            return SyncResult("changed")  # equal tokens twice before, others after
        return SyncResult("unknown", "the readings have too few tokens in common")
    noise = _rms([first[key] - second[key] for key in common]) / math.sqrt(2.0)
    moved = [after[key] - (first[key] + second[key]) / 2.0 for key in common]
    change = _rms(moved) / math.sqrt(1.5)
    if change * change >= RATIO * max(noise, SAME_WITHIN) ** 2:
        return SyncResult("changed", change=change, noise=noise)
    if noise > NOISE_LIMIT:
        cause = "equal weights give log-probs that differ as much"
        return SyncResult("unknown", cause, change, noise)
    if first.keys() == second.keys() != after.keys():
        return SyncResult("changed", change=change, noise=noise)
    return SyncResult("unchanged", change=change, noise=noise)


def _rms(values: list[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values))


class Canary:
    """Readings of one server: which are due, and what each weight sync did.

    Args:
        measure: Takes a reading.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._key: tuple[int, int] | None = None
        """Training run and step of the readings."""
        self._readings: list[Reading] = []
        self._before: tuple[int, list[Reading]] | None = None
        """Step before the sync that is not checked yet, and its readings."""
        self._hidden_in: int | None = None
        """Training run in which the server returned no log-probs."""

    def begin(self, run: int, step: int) -> None:
        """Note the weights that the server has now."""
        if (run, step) == self._key:
            return
        known, self._key = self._key, (run, step)
        later = known is not None and known[0] == run and known[1] < step
        self._before = (known[1], self._readings) if later and known is not None else None
        self._readings = []

    @property
    def due(self) -> bool:
        """Whether the weights of now lack a reading, or the result of their sync is not known."""
        if self._key is None:
            return False
        return self._before is not None or (not self._hidden and len(self._readings) < 2)

    @property
    def _hidden(self) -> bool:
        return self._key is not None and self._hidden_in == self._key[0]

    async def step(self) -> tuple[int, SyncResult] | None:
        """Take a reading, or conclude without one; return step and result of a sync if known.

        The readings that were taken before another call of `begin` are dropped.

        Raises:
            Interrupted: There is no reading now.
        """
        key = self._key
        reading: Reading | None = None
        if not self._hidden:
            reading = await self._measure()
            if self._key != key:
                raise Interrupted("the weights were replaced meanwhile")
            if reading is None and key is not None:
                self._hidden_in = key[0]
        if reading is not None:
            self._readings.append(reading)
        if self._before is None:
            return None
        (synced, readings), self._before = self._before, None
        if reading is None:
            return synced, SyncResult("unknown", HIDDEN)
        if len(readings) < 2:
            return synced, SyncResult("unknown", "fewer than two readings before the sync")
        return synced, compare(readings[0], readings[1], reading)


class CanaryWatch:
    """Canary of one server: an event for each weight sync, an alert if it changed nothing.

    Args:
        context: The shared parts of the proxy.
        server: The server; its watcher runs.
        facts: Its facts.
        user_waits: Returns whether a user's request waits for episodes.
        measure: Takes a reading; by default with an eval episode.
    """

    def __init__(
        self,
        context: ProxyContext,
        server: ServerHandle,
        facts: ServerFacts,
        user_waits: Callable[[], bool],
        measure: Measure | None = None,
    ) -> None:
        self.context = context
        self.server = server
        self._facts = facts
        self._user_waits = user_waits
        self._canary = Canary(measure or EpisodeReader(server, facts, user_waits))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY)
            await self.check()

    async def check(self) -> None:
        """Take the reading that is due, if no user waits."""
        status = self.server.watcher.current
        known = self.context.bus.state.servers.get(self.server.name)
        if not status.is_in(ROLLING) or status.step is None or known is None:
            return
        if not known.run_number or self._facts.recovering:
            return
        self._canary.begin(known.run_number, status.step)
        if not self._canary.due or self._facts.crowded or self._user_waits():
            return
        with contextlib.suppress(Interrupted):
            if (check := await self._canary.step()) is not None:
                self._report(*check)

    def _report(self, step: int, result: SyncResult) -> None:
        name, key = self.server.name, f"sync:{self.server.name}"
        self.context.bus.publish(
            WeightSyncChecked(
                server=name,
                step=step,
                outcome=result.outcome,
                cause=result.cause,
                change=result.change,
                noise=result.noise,
            )
        )
        if result.outcome == "unchanged":
            show_alert(self.context.bus, key, params_of("sync", server=name, step=step))
        elif result.outcome == "changed":
            clear_alert(self.context.bus, key)


class EpisodeReader:
    """Reader of log-probs by one eval episode; it gives way to users at once.

    Args:
        server: The server.
        facts: Its facts.
        user_waits: Returns whether a user's request waits for episodes.
    """

    def __init__(
        self, server: ServerHandle, facts: ServerFacts, user_waits: Callable[[], bool]
    ) -> None:
        self._server = server
        self._facts = facts
        self._user_waits = user_waits
        self._episodes = EvalEpisodes(server, facts, IDLE_LIMIT, "a reading of the canary")

    async def __call__(self) -> Reading | None:
        """Return a reading; see `Measure`."""
        give_way = asyncio.Event()
        step = self._server.watcher.current.step

        def on_status(status: ServerStatus) -> None:
            if not status.is_in(ROLLING) or status.step != step:
                give_way.set()

        remove = self._server.watcher.add_listener(on_status)
        try:
            with self._facts.window(give_way):
                return await self._with_episode(give_way)
        finally:
            remove()

    async def _with_episode(self, give_way: asyncio.Event) -> Reading | None:
        """Claim an episode, read and give it back, whatever happens meanwhile."""
        try:
            async with self._episodes.hold() as claimed:
                return await self._read_until(claimed, give_way)
        except NotGranted as error:
            raise Interrupted("no episode is free") from error

    async def _read_until(self, claimed: Claimed, give_way: asyncio.Event) -> Reading | None:
        """Return a reading, unless the episode must be given back before."""
        tasks = self._server.claimer.releaser.tasks
        reading = tasks.spawn(self._read(claimed, give_way), "canary reading")
        leaving = tasks.spawn(give_way.wait(), "canary interruption")
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Interrupted("the episode was given back early")
            result: Reading | Interrupted | None = reading.result()
            if isinstance(result, Interrupted):
                raise result
            return result
        finally:
            for task in (reading, leaving):
                task.cancel()

    async def _read(
        self, claimed: Claimed, give_way: asyncio.Event
    ) -> Reading | Interrupted | None:
        """Return a reading, None without log-probs, or why there is none now."""
        reading: dict[tuple[int, str], float] = {}
        for number, prompt in enumerate(PROMPTS):
            if give_way.is_set() or self._facts.crowded or self._user_waits():
                return Interrupted("a user waits")
            body = {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": 1,
                "temperature": 0.0,
                "logprobs": True,
                "top_logprobs": TOP,
            }
            try:
                answer = await self._server.client.chat(
                    claimed, msgspec.json.encode(body), None, CALL_LIMIT
                )
            except ChatError as error:
                return Interrupted(str(error))
            values = first_logprobs(answer)
            if not values:
                return None
            reading |= {(number, token): value for token, value in values.items()}
        return reading


def first_logprobs(answer: ChatAnswer) -> dict[str, float]:
    """Return log-probs of the first token of an answer, by token; empty if it has none."""
    choice: Any = answer.parsed["choices"][0]
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return {}
    top = content[0].get("top_logprobs")
    entries = [content[0], *(top if isinstance(top, list) else ())]
    return {
        one["token"]: float(one["logprob"])
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("token"), str) and _usable(one)
    }


def _usable(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry has a log-prob; servers write -9999 for impossible tokens."""
    value = entry.get("logprob")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -1000.0 < float(value or 0.0) <= 0.0
