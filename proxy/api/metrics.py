"""Metrics for a Prometheus server: those of vLLM that apply, and this program's own.

Counters start at 0 with the process; gauges are computed from the state when `/metrics` is
requested.
"""

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState
from core.events import EpisodeAborted, EpisodesEnded, Event, GroupClosed, GroupSealed
from core.state import State
from core.state.common import Dirty
from proxy.api.prometheus import Labels, by, counter, family, gauge, line, number
from proxy.dialects.request import PublicAnswer
from proxy.servers.observe import STATE

BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
           240.0, 480.0, 960.0)  # fmt: skip
"""Bounds in seconds: those of vLLM's latency histogram up to the longest possible request."""

_HELD_PHASES = frozenset({"claimed", "answered", "failed", "unknown"})
_OPEN_PHASES = ("QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING")


COUNTED_EVENTS = (EpisodesEnded, EpisodeAborted, GroupClosed, GroupSealed)
"""Events that `RequestMetrics` counts."""


class RequestMetrics:
    """Counters of requests, answers and events, and their output in Prometheus's format."""

    def __init__(self) -> None:
        self.open = 0
        """Requests in progress."""
        self.keepalives = 0
        self.refused: Counter[int] = Counter()
        """Errors by HTTP status; for an error within a stream, the status it would have had."""
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "tool_calls": 0})
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.seconds = 0.0
        self._latencies = [0] * (len(BUCKETS) + 1)
        self.ends: Counter[str] = Counter({"ended": 0, "recorded": 0, "expired": 0, "aborted": 0})
        """Episodes by outcome."""
        self.closed: Counter[str] = Counter({"DONE": 0, "ABORTED": 0, "FAILED": 0})
        """Groups by their last phase."""
        self.dead: Counter[str] = Counter()

    def count_answer(self, winners: Sequence[PublicAnswer], seconds: float) -> None:
        """Count one answered request.

        Args:
            winners: The answers, one per choice.
            seconds: Time from the request to the end of its answer.
        """
        self._latencies[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
        for index, answer in enumerate(winners):
            self.finished[answer.finish_reason] += 1
            self.generation_tokens += answer.usage["completion_tokens"]
            if not index:
                self.prompt_tokens += answer.usage["prompt_tokens"]

    def listen(self, event: Event, _: Dirty) -> None:
        """Count one event; a listener for `Bus.listen`."""
        if isinstance(event, EpisodesEnded):
            for episode in event.episodes:
                self.ends[episode.outcome] += 1
        elif isinstance(event, EpisodeAborted):
            self.ends["aborted"] += 1
        elif isinstance(event, GroupClosed):
            self.closed[event.phase] += 1
        elif isinstance(event, GroupSealed) and event.dead:
            self.dead[event.dead] += 1

    def text(
        self, state: State, model: str, waiting: int, engines: Mapping[str, ServerStatus]
    ) -> bytes:
        """Return all metrics in Prometheus's text format.

        Args:
            state: The proxy's current state.
            model: The served model name.
            waiting: Number of groups that hold no episodes yet.
            engines: Status of each swarm server by its name.
        """
        lines = [
            *self._vllm_metrics(model, waiting),
            *self._console_metrics(),
            *_group_gauges(state, waiting),
            *_engine_gauges(engines),
        ]
        return "\n".join([*lines, ""]).encode()

    def _vllm_metrics(self, model: str, waiting: int) -> Iterator[str]:
        base = {"engine": "0", "model_name": model}
        finished = self.finished.items()
        reasons = [({**base, "finished_reason": key}, count) for key, count in finished]
        prompt_total = [(base, self.prompt_tokens)]
        generation_total = [(base, self.generation_tokens)]
        running = [(base, max(self.open - waiting, 0))]
        yield from gauge("vllm:num_requests_running", "Requests in progress.", running)
        yield from gauge("vllm:num_requests_waiting", "Requests in the queue.", [(base, waiting)])
        yield from counter("vllm:request_success_total", "Answers by finish reason.", reasons)
        yield from counter("vllm:prompt_tokens_total", "Tokens of answered prompts.", prompt_total)
        yield from counter("vllm:generation_tokens_total", "Tokens of answers.", generation_total)
        yield from self._latency(base)

    def _latency(self, base: Labels) -> Iterator[str]:
        name = "vllm:e2e_request_latency_seconds"
        yield from family(name, "histogram", "Time from a request to the end of its answer.", ())
        cumulative = 0
        for bound, count in zip((*BUCKETS, float("inf")), self._latencies, strict=True):
            cumulative += count
            yield line(f"{name}_bucket", {**base, "le": number(bound)}, cumulative)
        yield line(f"{name}_sum", base, self.seconds)
        yield line(f"{name}_count", base, cumulative)

    def _console_metrics(self) -> Iterator[str]:
        ends, sent, keepalives = self.ends, self.ends["ended"], self.keepalives
        yield from counter("ajet_requests_refused_total", "Errors.", by("status", self.refused))
        yield from counter("ajet_episodes_total", "Episodes by outcome.", by("outcome", ends))
        yield from counter(
            "ajet_groups_closed_total", "Closed groups by last phase.", by("phase", self.closed)
        )
        yield from counter(
            "ajet_groups_dead_total",
            "Groups that teach nothing or little.",
            by("cause", self.dead),
        )
        yield from counter(
            "ajet_rewards_sent_total", "Rewards accepted by the server.", [({}, sent)]
        )
        yield from counter("ajet_keepalives_total", "No-op events on streams.", [({}, keepalives)])


def _group_gauges(state: State, waiting: int) -> Iterator[str]:
    groups = state.open_groups()
    phases = Counter(dict.fromkeys(_OPEN_PHASES, 0))
    phases.update(group.phase for group in groups)
    held = sum(
        bool(candidate.episode_uuid) and candidate.phase in _HELD_PHASES
        for group in groups
        for candidate in group.candidates
    )
    yield from gauge("ajet_groups_open", "Open groups by phase.", by("phase", phases))
    yield from gauge("ajet_groups_queued", "Groups without episodes.", [({}, waiting)])
    yield from gauge("ajet_episodes_held", "Currently claimed episodes.", [({}, held)])


def _engine_gauges(engines: Mapping[str, ServerStatus]) -> Iterator[str]:
    states = [
        ({"server": name, "state": state}, float(_state_label(status) == state))
        for name, status in engines.items()
        for state in (*(known.value for known in EngineState), STATE)
    ]
    items = engines.items()
    steps = [({"server": name}, status.step) for name, status in items if status.step is not None]
    yield from gauge("ajet_engine_state", "1 for the current state of a server.", states)
    yield from gauge("ajet_global_step", "Completed policy updates.", steps)


def _state_label(status: ServerStatus) -> str:
    """Return the state as on screen: a server in observe mode has its own."""
    return STATE if status.reachable and status.raw == STATE else status.display_state.value
