"""What a Prometheus server may scrape: vLLM's own names where they fit, and ours.

Counting is a few additions per request; gauges are read from the state when somebody asks. Counters
begin at 0 with each start of the process.
"""

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState
from core.events import EpisodeAborted, EpisodeEnded, EpisodesEnded, Event, GroupClosed, GroupSealed
from core.reducer.common import Dirty
from core.state import State
from proxy.api.prometheus import Labels, by, counter, family, gauge, line, number
from proxy.dialects.request import PublicAnswer
from proxy.servers.observe_client import STATE

BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
           240.0, 480.0, 960.0)  # fmt: skip
"""Seconds; those of vLLM's latency histograms as far as a request can last here."""

_HOLDS = frozenset({"claimed", "answered", "failed", "unknown"})
_OPEN = ("QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING")


COUNTED = (EpisodeEnded, EpisodesEnded, EpisodeAborted, GroupClosed, GroupSealed)
"""Events that a meter listens to."""


class RequestMetrics:
    """Counts what happens; `listen` is for the bus, the rest for who answers requests."""

    def __init__(self) -> None:
        self.open = 0
        """Requests that are being answered."""
        self.keepalives = 0
        self.refused: Counter[int] = Counter()
        """By HTTP status; in a stream by the status it would have had."""
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "tool_calls": 0})
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.seconds = 0.0
        self._latencies = [0] * (len(BUCKETS) + 1)
        self.ends: Counter[str] = Counter({"ended": 0, "recorded": 0, "expired": 0, "aborted": 0})
        """Episodes by how they ended."""
        self.closed: Counter[str] = Counter({"DONE": 0, "ABORTED": 0, "FAILED": 0})
        """Groups by their last phase."""
        self.dead: Counter[str] = Counter()

    def answered(self, winners: Sequence[PublicAnswer], seconds: float) -> None:
        """A user got its answer."""
        self._latencies[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
        for index, one in enumerate(winners):
            self.finished[one.finish_reason] += 1
            self.generation_tokens += one.usage["completion_tokens"]
            if not index:
                self.prompt_tokens += one.usage["prompt_tokens"]

    def listen(self, event: Event, _: Dirty) -> None:
        """For `Bus.listen`."""
        if isinstance(event, EpisodeEnded):
            self.ends[event.outcome] += 1
        elif isinstance(event, EpisodesEnded):
            for one in event.episodes:
                self.ends[one.outcome] += 1
        elif isinstance(event, EpisodeAborted):
            self.ends["aborted"] += 1
        elif isinstance(event, GroupClosed):
            self.closed[event.phase] += 1
        elif isinstance(event, GroupSealed) and event.dead:
            self.dead[event.dead] += 1

    def text(
        self, state: State, model: str, waiting: int, engines: Mapping[str, ServerStatus]
    ) -> bytes:
        """Everything, in Prometheus's text form.

        Args:
            state: The proxy's state now.
            model: The name that is served.
            waiting: Groups that hold no episodes yet.
            engines: What is known of each swarm server.
        """
        lines = [
            *self._vllm(model, waiting),
            *self._own(),
            *_groups(state, waiting),
            *_engines(engines),
        ]
        return "\n".join([*lines, ""]).encode()

    def _vllm(self, model: str, waiting: int) -> Iterator[str]:
        base = {"engine": "0", "model_name": model}
        why = [({**base, "finished_reason": key}, count) for key, count in self.finished.items()]
        read, written = [(base, self.prompt_tokens)], [(base, self.generation_tokens)]
        running = [(base, max(self.open - waiting, 0))]
        yield from gauge("vllm:num_requests_running", "Requests in work.", running)
        yield from gauge("vllm:num_requests_waiting", "Requests in the queue.", [(base, waiting)])
        yield from counter("vllm:request_success_total", "Answers by finish reason.", why)
        yield from counter("vllm:prompt_tokens_total", "Prompts that were answered.", read)
        yield from counter("vllm:generation_tokens_total", "Answers that were given.", written)
        yield from self._latency(base)

    def _latency(self, base: Labels) -> Iterator[str]:
        name = "vllm:e2e_request_latency_seconds"
        yield from family(name, "histogram", "From a request to the end of its answer.", ())
        below = 0
        for bound, count in zip((*BUCKETS, float("inf")), self._latencies, strict=True):
            below += count
            yield line(f"{name}_bucket", {**base, "le": number(bound)}, below)
        yield line(f"{name}_sum", base, self.seconds)
        yield line(f"{name}_count", base, below)

    def _own(self) -> Iterator[str]:
        ends, sent, kept = self.ends, self.ends["ended"], self.keepalives
        yield from counter("ajet_requests_refused_total", "Errors.", by("status", self.refused))
        yield from counter("ajet_episodes_total", "Episodes by their end.", by("outcome", ends))
        yield from counter("ajet_groups_closed_total", "Groups ended.", by("phase", self.closed))
        yield from counter("ajet_groups_dead_total", "Teach nothing.", by("cause", self.dead))
        yield from counter("ajet_rewards_sent_total", "Rewards the server took.", [({}, sent)])
        yield from counter("ajet_keepalives_total", "No-op events on streams.", [({}, kept)])


def _groups(state: State, waiting: int) -> Iterator[str]:
    groups = state.open_groups()
    phases = Counter(dict.fromkeys(_OPEN, 0))
    phases.update(group.phase for group in groups)
    held = sum(
        bool(one.episode_uuid) and one.phase in _HOLDS
        for group in groups
        for one in group.candidates
    )
    yield from gauge("ajet_groups_open", "Open groups by phase.", by("phase", phases))
    yield from gauge("ajet_groups_queued", "Groups without episodes.", [({}, waiting)])
    yield from gauge("ajet_episodes_held", "Episodes claimed now.", [({}, held)])


def _engines(engines: Mapping[str, ServerStatus]) -> Iterator[str]:
    states = [
        ({"server": name, "state": state}, float(_shown(seen) == state))
        for name, seen in engines.items()
        for state in (*(known.value for known in EngineState), STATE)
    ]
    told = engines.items()
    steps = [({"server": name}, seen.step) for name, seen in told if seen.step is not None]
    yield from gauge("ajet_engine_state", "1 for the state it is in.", states)
    yield from gauge("ajet_global_step", "Policy updates done.", steps)


def _shown(seen: ServerStatus) -> str:
    """As on screen: nothing rolls where nothing is trained."""
    return STATE if seen.reachable and seen.raw == STATE else seen.display_state.value
