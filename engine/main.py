"""The engine's process: port, run file, signals, event loop."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from ajet_swarm.common.errors import UsageError
from core.runtime.home import Home, Role
from core.runtime.log_format import setup
from core.runtime.secrets import redacted_argv
from core.runtime.sockets import bind, is_loopback, loop_factory, public_url
from engine.app import create_app, loopback_hosts
from engine.interface import CheckpointManager, PolicyBackend
from engine.policy.checkpoint_manager import TinyCheckpoints
from engine.server.job import Job, JobSupport
from engine.server.lifecycle import Engine
from engine.server.policy_holder import PolicyFactory
from engine.storage.experiments import Experiments
from engine.torch.names import slug
from engine.torch.options import TorchOptions
from engine.torch.recipe import recipe

log = logging.getLogger("engine")

DEFAULT_PORT = 10086
"""AgentJet's port, so that its scripts find this engine."""

_GRACE_SECONDS = 1
_KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that they close first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of the engine's process."""

    home: Home
    model: str = "tiny"
    """Policy to train: `tiny`; with `torch` the name that the operator gave, which `torch.model`
    makes exact."""
    torch: TorchOptions | None = None
    """Options of the torch backend; None uses the numpy backend."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 uses any free port."""
    reset: bool = False
    """Start from the base weights."""
    start_from: str | None = None
    """Start from this checkpoint."""
    faithful: bool = False
    """Reproduce the real server's broken behaviour."""
    strict_context: bool = False
    """Refuse a prompt over the window instead of dropping its middle."""
    allow_unauthenticated: bool = False
    """Bind an address that other hosts can reach, although the swarm wire carries no key."""
    log_level: str = "info"


def run(options: EngineOptions, factory: PolicyFactory | None = None) -> int:
    """Serve until SIGTERM or SIGINT; log to stderr.

    Args:
        options: Options of the process.
        factory: Opens the policy; by default the one that the options name.

    Returns:
        The exit status of the process.

    Raises:
        UsageError: a routable host without `allow_unauthenticated`.
        PortInUse: names the process on the port where that is known.
        AlreadyRunning: an engine of this home is running.
    """
    _check_host(options)
    setup(options.log_level.upper())
    with Role(options.home, "engine") as role, _listen(options) as listener:
        engine = make_engine(options, factory)
        host, port = listener.getsockname()[:2]
        url = public_url(options.host, port)
        engine.base_url = f"{url}/v1"
        hosts = loopback_hosts(options.host) if is_loopback(options.host) else None
        server = _Server(
            uvicorn.Config(
                create_app(engine, home=str(options.home.root), allowed_hosts=hosts),
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            ),
            engine,
            lambda: role.publish(
                host=host, port=port, url=url, extra={"argv": redacted_argv(sys.argv[1:])}
            ),
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))
        return 0 if server.started else 1


def _listen(options: EngineOptions) -> socket.socket:
    return bind(options.host, options.port, setting="`engine.port` (`run engine --port`)")


def make_engine(options: EngineOptions, factory: PolicyFactory | None = None) -> Engine:
    """Return the engine for the options.

    Args:
        options: Options of the command line.
        factory: Creates the policy; that of `options.model` by default.
    """
    torch = options.torch
    root, managers, open_policy = _torch(options, torch) if torch else _tiny(options)
    experiments = Experiments(root, None if factory else managers)
    engine = Engine(
        factory
        or open_policy(
            experiments, lambda: engine.job, lambda step: engine.verbose.add("boot", step)
        ),
        experiments=experiments,
        reset=options.reset,
        faithful=options.faithful,
        strict_context=options.strict_context or torch is not None,
        show_syncs=True,
    )
    engine.policy_holder.start_from = options.start_from
    if torch is None:
        engine.job_support = JobSupport(model=options.model)
    else:
        engine.recipe = recipe(torch.full)
        engine.job_support = JobSupport(
            loads_models=True,
            model="smollm2" if options.model == "smollm2" else torch.model,
            lora_rank=torch.lora_rank,
            full=torch.full,
        )
    if options.model == "smollm2":
        engine.temperature = 0.7  # at 1 it is incoherent
    return engine


_Managers = Callable[[Path], CheckpointManager]
"""Returns the checkpoint manager of a folder."""
_OpenPolicy = Callable[
    [Experiments, Callable[[], Job | None], Callable[[str], None]], PolicyFactory
]
"""Returns the factory of the policy, from the experiments, the engine's present job, and what is
called with each step of a long opening."""


def _tiny(options: EngineOptions) -> tuple[Path, _Managers, _OpenPolicy]:
    """Return root folder, checkpoints and policy of the numpy backend."""
    return options.home.engine, TinyCheckpoints, lambda experiments, *_: tiny_policy(experiments)


def _torch(options: EngineOptions, torch: TorchOptions) -> tuple[Path, _Managers, _OpenPolicy]:
    """Return root folder, checkpoints and policy of the torch backend."""
    from engine.torch.checkpoints import TorchCheckpoints
    from engine.torch.opening import torch_policy

    def open_policy(
        experiments: Experiments, job: Callable[[], Job | None], report: Callable[[str], None]
    ) -> PolicyFactory:
        return torch_policy(torch, experiments, job, report)

    return options.home.engine / "torch" / slug(torch.model), TorchCheckpoints, open_policy


def tiny_policy(experiments: Experiments) -> PolicyFactory:
    """Return a factory of the tiny policy of the selected experiment."""

    async def open_tiny(reset: bool) -> PolicyBackend:
        return await asyncio.to_thread(_open_tiny, experiments.folder, reset)

    return open_tiny


def _open_tiny(folder: Path, reset: bool) -> PolicyBackend:
    from engine.training import threads

    threads.prepare()  # before numpy is imported, which fixes the threads of BLAS
    from engine.policy.tiny import TinyPolicy

    return TinyPolicy.open(folder, reset=reset)


class _Server(uvicorn.Server):
    """Server that exits with status 0 on a signal, after the engine has answered its callers."""

    def __init__(
        self, config: uvicorn.Config, engine: Engine, on_started: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._engine = engine
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report the address."""
        await super().startup(sockets=sockets)
        if self.started:
            await asyncio.to_thread(self._on_started)
            log.info("listening on %s", self._engine.base_url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the calls in flight first, so that no client waits for them."""
        await self._engine.stop()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """As in uvicorn, but do not raise the signal again afterwards."""
        previous = {
            number: signal.signal(number, self._signalled)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        log.info("stopping on %s", signal.Signals(number).name)
        self.handle_exit(number, frame)


def _check_host(options: EngineOptions) -> None:
    if options.allow_unauthenticated or is_loopback(options.host):
        return
    raise UsageError(
        "other hosts could reach the engine, and the swarm protocol carries no key: "
        "anyone could stop it, abort episodes and train the policy",
        options.host,
        "Bind 127.0.0.1 and use an SSH tunnel, or give --allow-unauthenticated",
    )
