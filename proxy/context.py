"""The context object that all parts of the proxy share, and the handle of one server."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.api.watcher import OFF, QUIET, Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, keep_running
from ajet_swarm.common.text import one_line
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.runtime import SYSTEM, Runtime
from core.bus import Bus
from core.control_payloads import EngineInfo
from core.dialects.errors import ApiError
from core.events.alerts import params_of
from core.journal.prune import Pruner
from core.journal.writer import Journal
from core.settings import Settings
from proxy.alerts import show_alert
from proxy.dataset_rows import Rows
from proxy.held_out import HeldOutPrompts
from proxy.http.errors import BUSY, EngineOffline, overloaded
from proxy.rewards.source import RewardSource

STARTING_RETRY = 5
"""`Retry-After` in seconds while an engine starts: the SDKs of OpenAI and Anthropic retry twice."""


@dataclass(slots=True)
class ServerHandle:
    """One swarm server, or one upstream in observe mode, with its client, watcher and claimer.

    Five properties say what differs between them; the defaults are those of a swarm server.

    Attributes:
        trains: It trains on what it gets. Else rewards are only recorded.
        intent_is_durable: It keeps episodes after the proxy has ended, and takes idle ones back. So
            an intent is committed before the claim, and a reward is durable before it is sent.
        run_samples: The run decides temperature and seed of its requests, not the client.
        strict_window: It refuses a prompt that exceeds its context window together with the
            requested answer; else it shortens the answer.
        may_be_commanded: It has an engine that can be started and stopped.
    """

    name: str
    url: str
    client: SwarmWire
    watcher: Watcher
    claimer: EpisodeClaimer
    paused: str = ""
    """Why its requests are not trained on; empty if they are."""
    most_episodes: int | None = None
    """Maximum number of episodes at a time; None if the server reports it."""
    trains: bool = True
    intent_is_durable: bool = True
    run_samples: bool = True
    strict_window: bool = False
    may_be_commanded: bool = True
    is_starting: Callable[[], bool] = lambda: False
    """Whether an engine that is off or silent is expected to answer within seconds."""
    info: EngineInfo = field(default_factory=EngineInfo)
    """What it reports of itself."""
    identifying: asyncio.Event | None = None
    """While the training run of a started engine is read, the event of its end."""

    @property
    def state(self) -> str:
        """Name of its state, as it is displayed."""
        status = self.watcher.current
        return status.state.value if self.trains else status.raw or status.state.value

    @property
    def window(self) -> int | None:
        """Context window in tokens, prompt and answer together; None if unknown."""
        return self.client.facts.context_length or self.info.context

    def overloaded(self, model: str, retry_after: int, message: str = BUSY) -> ApiError:
        """Return the 503 of this server; it names the server if the request did.

        For an engine that is off, starting or unreachable, its state replaces `message`.

        Args:
            model: The model named in the request.
            retry_after: Seconds.
            message: Why the request is refused.
        """
        status = self.watcher.current
        engine = "The engine" if self.may_be_commanded else "The upstream"
        if model == self.name:
            engine = f"Server {self.name}"
            message = f"{engine} is {status.display_state.value}. {message}"
        starting = (status.is_in(OFF) or status.down) and self.is_starting()
        if starting:
            return overloaded(STARTING_RETRY, f"{engine} is starting. Please try again later.")
        if status.is_in(OFF):
            quiet = self.watcher.clock() - status.since
            return EngineOffline(engine, settled=quiet >= QUIET)
        if status.down:
            message = f"{engine} cannot be reached. Please try again later."
        return overloaded(retry_after, message)


@dataclass(slots=True)
class ProxyContext:
    """The shared parts of one proxy. All of them belong to one event loop."""

    settings: Settings
    journal: Journal
    bus: Bus
    servers: dict[str, ServerHandle]
    """By name, the default server first."""
    rewards: RewardSource
    rows: Rows
    tasks: Tasks
    client_uuid: str
    held_out: HeldOutPrompts = field(default_factory=HeldOutPrompts)
    """Prompts that are never trained on."""
    pruner: Pruner | None = None
    """Keeps the journal within its size and age limits."""
    runtime: Runtime = SYSTEM
    """The clocks and the chance of the process."""
    clock: Callable[[], float] = field(init=False)
    """The wall clock of `runtime`; the source of all displayed times."""

    def __post_init__(self) -> None:
        self.clock = self.runtime.clock.wall

    async def keep_running(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run a loop of the proxy as `keep_running` does, and show its failures as an alert."""

        def failed(error: Exception) -> None:
            text = one_line(f"{type(error).__name__}: {error}", 300)
            show_alert(self.bus, f"part:{name}", params_of("part", part=name, error=text))

        await keep_running(work, name, failed)

    def server_of(self, model: str) -> ServerHandle:
        """Return the server that a model name selects, whatever its state; else the first one."""
        return self.servers.get(model) or next(iter(self.servers.values()))
