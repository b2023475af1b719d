"""Metrics for a Prometheus server: those of vLLM that apply, and this program's own.

Counters start at 0 with the process; gauges are computed from the state when `/metrics` is
requested. `RequestMetrics` is the collector of a registry of its own, one for each app.
"""

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, metrics_core
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState
from core.dialects.request import PublicAnswer
from core.events import EpisodeAborted, EpisodesEnded, Event, GroupClosed, GroupSealed
from core.state import State
from core.state.common import Dirty
from proxy.admission.registry import Groups
from proxy.context import ProxyContext
from proxy.servers.observe import STATE

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
           240.0, 480.0, 960.0)  # fmt: skip
"""Bounds in seconds: those of vLLM's latency histogram up to the longest possible request."""

_HELD_PHASES = frozenset({"claimed", "answered", "failed", "unknown"})
_OPEN_PHASES = ("QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING")
_MODEL = ("engine", "model_name")


class RequestMetrics(Collector):
    """Counters of requests, answers and events, and their output in Prometheus's format."""

    def __init__(self, context: ProxyContext, groups: Groups) -> None:
        self._context = context
        self._groups = groups
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.open = 0
        """Requests in progress."""
        self.keepalives = 0
        self.refused: Counter[int] = Counter()
        """Errors by HTTP status; for an error within a stream, the status it would have had."""
        self._finished: Counter[str] = Counter({"stop": 0, "length": 0, "tool_calls": 0})
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._seconds = 0.0
        self._latencies = [0] * (len(BUCKETS) + 1)
        self._ends: Counter[str] = Counter({"ended": 0, "recorded": 0, "expired": 0, "aborted": 0})
        """Episodes by outcome."""
        self._closed: Counter[str] = Counter({"DONE": 0, "ABORTED": 0, "FAILED": 0})
        """Groups by their last phase."""
        self._dead: Counter[str] = Counter()
        context.bus.listen(self._count, EpisodesEnded, EpisodeAborted, GroupClosed, GroupSealed)

    def count_answer(self, winners: Sequence[PublicAnswer], seconds: float) -> None:
        """Count one answered request.

        Args:
            winners: The answers, one per choice.
            seconds: Time from the request to the end of its answer.
        """
        self._latencies[bisect.bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds
        self._finished.update(answer.finish_reason for answer in winners)
        self._prompt_tokens += sum(answer.usage["prompt_tokens"] for answer in winners[:1])
        self._generation_tokens += sum(answer.usage["completion_tokens"] for answer in winners)

    def _count(self, event: Event, _: Dirty) -> None:
        match event:
            case EpisodesEnded():
                self._ends.update(episode.outcome for episode in event.episodes)
            case EpisodeAborted():
                self._ends["aborted"] += 1
            case GroupClosed():
                self._closed[event.phase] += 1
            case GroupSealed() if event.dead:
                self._dead[event.dead] += 1

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        waiting, model = self._groups.waiting, ("0", self._groups.models()[0])
        running = {model: max(self.open - waiting, 0)}
        reasons = {(*model, reason): count for reason, count in self._finished.items()}
        prompt, generation = {model: self._prompt_tokens}, {model: self._generation_tokens}
        yield _family("vllm:num_requests_running", "Requests in progress.", running, *_MODEL)
        yield _family("vllm:num_requests_waiting", "Queued requests.", {model: waiting}, *_MODEL)
        name = "vllm:request_success_total"
        yield _family(name, "Answers by finish reason.", reasons, *_MODEL, "finished_reason")
        yield _family("vllm:prompt_tokens_total", "Tokens of answered prompts.", prompt, *_MODEL)
        yield _family("vllm:generation_tokens_total", "Tokens of answers.", generation, *_MODEL)
        yield self._latency(model)
        yield _family("ajet_requests_refused_total", "Errors.", self.refused, "status")
        yield _family("ajet_episodes_total", "Episodes by outcome.", self._ends, "outcome")
        yield _family("ajet_groups_closed_total", "Closed groups.", self._closed, "phase")
        yield _family("ajet_groups_dead_total", "Groups that teach little.", self._dead, "cause")
        sent, keepalives = {(): self._ends["ended"]}, {(): self.keepalives}
        yield _family("ajet_rewards_sent_total", "Rewards accepted by the server.", sent)
        yield _family("ajet_keepalives_total", "No-op events on streams.", keepalives)
        yield from _group_gauges(self._context.bus.state, waiting)
        yield from _engine_gauges(
            {name: server.watcher.current for name, server in self._context.servers.items()}
        )

    def _latency(self, model: tuple[str, str]) -> Metric:
        name, text = "vllm:e2e_request_latency_seconds", "Time from a request to its whole answer."
        family = metrics_core.HistogramMetricFamily(name, text, labels=_MODEL)
        counts = zip((*map(str, BUCKETS), "+Inf"), accumulate(self._latencies), strict=True)
        family.add_metric(model, list(counts), self._seconds)
        return family


def _group_gauges(state: State, waiting: int) -> Iterator[Metric]:
    groups = state.open_groups()
    phases = Counter(dict.fromkeys(_OPEN_PHASES, 0))
    phases.update(group.phase for group in groups)
    held = sum(
        bool(candidate.episode_uuid) and candidate.phase in _HELD_PHASES
        for group in groups
        for candidate in group.candidates
    )
    yield _family("ajet_groups_open", "Open groups by phase.", phases, "phase")
    yield _family("ajet_groups_queued", "Groups without episodes.", {(): waiting})
    yield _family("ajet_episodes_held", "Currently claimed episodes.", {(): held})


def _engine_gauges(engines: Mapping[str, ServerStatus]) -> Iterator[Metric]:
    states = {
        (name, state): _state_label(status) == state
        for name, status in engines.items()
        for state in (*(known.value for known in EngineState), STATE)
    }
    steps = {name: status.step for name, status in engines.items() if status.step is not None}
    text = "1 for the current state of a server."
    yield _family("ajet_engine_state", text, states, "server", "state")
    yield _family("ajet_global_step", "Completed policy updates.", steps, "server")


def _state_label(status: ServerStatus) -> str:
    """Return the state as on screen: a server in observe mode has its own."""
    return STATE if status.reachable and status.raw == STATE else status.display_state.value


def _family(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """Return a counter if the name ends in `_total`, else a gauge, with a sample for each value.

    Args:
        name: As it is exported.
        text: Its help.
        values: Its label, or a tuple of them -> the value.
        labels: Names of the labels.
    """
    is_counter = name.endswith("_total")
    kind = metrics_core.CounterMetricFamily if is_counter else metrics_core.GaugeMetricFamily
    family = kind(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key if isinstance(key, tuple) else (str(key),), value)
    return family
