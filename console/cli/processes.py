"""Commands that run as processes: the console, `engine` and `proxy`; their restart."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.commands import EXIT
from console.cli.common import (
    NotRunning,
    base_url,
    cert_of,
    existing_home,
    open_home,
    settings_of,
)
from console.cli.engine.backend import (
    TORCH,
    check_backend,
    check_device_present,
    have_own_model,
    have_smollm2,
    model_flags,
    torch_model,
)
from console.cli.options import BACKEND, SERVING, YES, Args, flag, given, option, takes
from console.cli.output import agree, say_result, would
from console.text.values import fields_of
from core.commands import COMMANDS
from core.runtime.home import Home, missing_home, running
from core.runtime.tls import absolute_path
from core.settings import SMOLLM2, EngineSettings, Settings
from core.state import State

ENDED = (128 + signal.SIGHUP, 128 + signal.SIGTERM)
"""Exit codes of a setup that was ended by a signal from outside."""


def console(args: Args) -> int:
    """Run the console.

    Raises:
        HomeError: with `--read-only` the home must exist, because it is not created.
    """
    home = (existing_home if args.read_only and not args.attach else open_home)(args)
    if not home.exists:
        raise missing_home(home)
    set_flags = given(args, SERVING)
    flags = model_flags(args.backend, args.model)
    settings = _proxy_settings(home, args, console__theme=args.theme, **flags)
    if args.keys:
        from console.cli.keys import show_keys

        return show_keys(settings.console.keys)
    attach = _attach(args, set_flags)
    watch_only = settings.proxy.watch_only and not attach
    _check_watchable(settings, watch_only=watch_only)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the console needs a terminal",
            todo="Without a terminal, use `ajet-console run` and `ajet-console status`",
        )
    start_engine = not (args.no_engine or args.read_only or watch_only)
    if not _can_start(args, home, settings, own_engine=start_engine and not attach):
        return 1
    from console.app import SETUP_FOLLOWS, run_console
    from console.backend.options import ConsoleOptions

    code = run_console(
        ConsoleOptions(
            home=home,
            settings=settings,
            attach=attach,
            next_port=args.port is None,
            start_engine=start_engine,
            proxy_flags=frozenset(set_flags),
            **fields_of(args, "token_file read_only"),
        )
    )
    return _setup_and_console(args, home) if code == SETUP_FOLLOWS else code


def _can_start(args: Args, home: Home, settings: Settings, *, own_engine: bool) -> bool:
    """Return whether the embedded engine has its model, if the console starts it.

    Raises:
        UsageError: an option of that engine is invalid, or has no effect.
        AjetError: a package of the torch backend is missing.
    """
    if own_engine and "embedded" in settings.servers().values():
        check_backend(settings.engine, model=args.model)
        return _have_model(home, settings.engine, False)
    if args.model or args.backend:
        raise UsageError(
            "--model and --backend apply to the embedded engine, which is not started here",
            todo="Leave them out; the job names the model of another server",
        )
    return True


def _setup_and_console(args: Args, home: Home) -> int:
    """Run the setup on the console's terminal, then the console again, also after Ctrl+C."""
    from console.cli import main
    from console.cli.setup.dialog import read_line

    code = main(["setup", "--stop", "--home", str(home.root)])
    if code in ENDED:
        return code
    read_line("\nEnter opens the console: ")
    return console(args)


@takes(
    option("--host ADDRESS", "address to listen on"),
    option("--port N", "port; 0 takes any free one", type=int),
    BACKEND,
    TORCH,
    flag("--yes", "download the model without asking; required without a terminal"),
    flag("--reset", "start from the base weights"),
    option(
        "--from NAME",
        "continue from this checkpoint; see `ajet-console checkpoints`",
        dest="start_from",
    ),
    flag(
        "--faithful",
        "behave like the real AgentJet server, including its faults; for testing clients",
    ),
    flag(
        "--strict-context",
        "refuse a prompt longer than the context window instead of dropping its middle",
    ),
    flag(
        "--allow-unauthenticated",
        "listen on an address other machines can reach, although the protocol has no key",
    ),
)
def engine(args: Args) -> int:
    """Run the embedded engine."""
    home = open_home(args)
    flags = model_flags(args.backend, args.model)
    settings = settings_of(home, engine__host=args.host, engine__port=args.port, **flags)
    own = settings.engine
    check_backend(own, model=args.model, device=args.device or "", only_torch=given(args, TORCH))
    check_device_present(own, args.device or "")
    if not _have_model(home, own, args.yes):
        return 1
    if _would_run("the embedded engine", own.host, own.port, home):
        return 0
    from core.runtime.log_format import setup
    from engine.main import EngineOptions, run
    from engine.torch.options import TorchOptions

    setup()
    torch = None
    if own.backend == "torch":
        torch = TorchOptions(
            model=torch_model(home, own),
            device=args.device or "",
            dtype=args.dtype or "",
            lora_rank=args.lora,
            **fields_of(args, "full context max_memory"),
        )
    more = fields_of(args, "reset start_from faithful strict_context allow_unauthenticated")
    more |= fields_of(own, "model host port")
    return run(EngineOptions(home=home, torch=torch, **more))


@takes(
    SERVING,
    option(
        "--api-key KEY",
        "the key itself; other users of this machine can read it, prefer --api-key-file",
    ),
    option(
        "--cors-origin URL",
        "web page that may use /v1 from a browser; repeatable, `*` for any",
        multiple=True,
    ),
    flag("--next-port", "take the next free port when the port is taken"),
    option(
        "--engine-starts-by UNIX_SECONDS",
        "until then, requests are told that the embedded engine starts: the console starts it",
        type=float,
        default=0.0,
    ),
)
def proxy(args: Args) -> int:
    """Run the fake vLLM without a console."""
    if args.api_key and args.api_key_file:
        raise UsageError("--api-key and --api-key-file exclude each other", todo="Give the file")
    home = open_home(args)
    more: dict[str, Any] = {"proxy__api_key_file": ""} if args.api_key else {}
    settings = _proxy_settings(
        home,
        args,
        proxy__api_key=args.api_key,
        proxy__cors_origins=",".join(args.cors_origin) if args.cors_origin else None,
        **more,
    )
    _check_watchable(settings, watch_only=settings.proxy.watch_only)
    if _would_run("the fake vLLM", settings.proxy.host, settings.proxy.port, home):
        return 0
    from core.runtime.log_format import setup
    from proxy.main import ProxyOptions, run

    setup()
    return run(ProxyOptions(home, settings, args.next_port, args.engine_starts_by))


def _have_model(home: Home, own: EngineSettings, yes: bool) -> bool:
    """Make sure that the engine's model is on this disk; False when the operator declined."""
    if own.backend != "torch":
        return True
    if own.model == SMOLLM2:
        return have_smollm2(home, yes)
    return have_own_model(torch_model(home, own), yes)


def _would_run(process: str, host: str, port: int, home: Home) -> bool:
    """In a dry run, say what would be started and return True."""
    where = f"{host}:{port}" if port else f"a free port of {host}"
    return would(f"start {process} on {where} in the home {home.root}")


def _check_watchable(settings: Settings, *, watch_only: bool) -> None:
    """Check that a watch-only proxy has a swarm server to watch.

    Raises:
        UsageError: there is only an upstream.
    """
    if watch_only and settings.upstream.url:
        raise UsageError(
            "--watch-only and --upstream exclude each other: an upstream has no engine to watch",
            todo="Name swarm servers with --swarm-url NAME=URL",
        )


def _attach(args: Args, set_flags: Sequence[str]) -> str | None:
    """Return the address to attach to; check that each option has an effect with it or without it.

    Raises:
        UsageError: it is no address, or an option is excluded or has no effect.
    """
    if args.attach is None:
        if args.token_file is not None:
            raise UsageError(
                "--token-file applies only with --attach",
                todo="Leave it out: a proxy of this home has its own token",
            )
        return None
    attach = base_url(args.attach, "--attach")
    if args.watch_only:
        raise UsageError(
            "--attach and --watch-only exclude each other",
            todo="Attach with --read-only to watch a running proxy",
        )
    if unused := [flag for flag in set_flags if flag != "--tls-cert"]:
        verb = "applies" if len(unused) == 1 else "apply"
        raise UsageError(
            f"{', '.join(unused)} {verb} to a proxy that is started here, and --attach starts none",
            todo="Give them to that proxy when it is started",
        )
    return attach


def _file(path: str | None) -> str | None:
    return absolute_path(path) if path else None


def _proxy_settings(home: Home, args: Args, **more: Any) -> Settings:
    """Load the settings with the options of the fake vLLM.

    Args:
        home: Contains the settings file.
        args: The parsed command line.
        more: Further settings as for `settings_of`; they override those of the options.
    """
    own = {
        "proxy__host": args.host,
        "proxy__port": args.port,
        "proxy__api_key_file": _file(args.api_key_file),
        "proxy__tls_cert": _file(args.tls_cert),
        "proxy__tls_key": _file(args.tls_key),
        "proxy__watch_only": args.watch_only or None,
        "upstream__url": args.upstream.rstrip("/") if args.upstream else None,
        "upstream__model": args.upstream_model,
        "upstream__key_file": _file(args.upstream_key_file),
        "rewards__hooks": _file(args.hooks),
        "rewards__file": _file(args.rewards),
    }
    return settings_of(home, args.swarm_url, **{**own, **more})


# --- restart -------------------------------------------------------------------------------------


@takes(YES, notes=(EXIT,))
def restart(args: Args) -> int:
    """Stop a process of this home and start it again with the same command line.

    Raises:
        NotRunning: the process does not run.
    """
    role = "proxy" if args.order_name == "proxy.restart" else "engine"
    home = existing_home(args)
    info = running(home, role)
    if info is None:
        todo = f"Start it: `ajet-console run {role}`"
        raise NotRunning(f"no {role} runs in this home", str(home.root), todo)
    lost = [] if args.yes else asyncio.run(losses(role, home))
    agree(f"Restart the {role} (pid {info.pid})", lost, args.yes)
    if would(f"restart the {role} (pid {info.pid})"):
        return 0
    pid, url = asyncio.run(_restart(home, role, args.order_name))
    message = f"The {role} runs again, pid {pid}, {url}"
    data = {"command": args.order_name, "ok": True, "message": message, "pid": pid, "url": url}
    return say_result(args, data, (message,))


async def losses(role: str, home: Home) -> list[str]:
    """Return what a restart of the proxy or of the engine loses; also when the proxy hangs."""
    from core.commands.plan_engines import restart_loss
    from proxy.control.client import ControlClient

    info = running(home, "proxy")
    if info is None:
        return restart_loss(State(), role)
    try:
        async with (
            asyncio.timeout(5),
            ControlClient(info.url, home.token(), cert=cert_of(home)) as client,
        ):
            return restart_loss(await client.snapshot(), role)
    except (AjetError, TimeoutError):
        return ["The proxy does not answer, so the groups that wait for a rating are unknown."]


async def _restart(home: Home, role: str, command: str) -> tuple[int, str]:
    from console.backend.supervisor import Supervisor

    supervisor = Supervisor(home, settings_of(home))
    try:
        await supervisor.restart(role)
        info = await supervisor.wait_ready(role)
    except AjetError as error:
        what = f"{COMMANDS[command].title}: {error.what}"
        raise AjetError(what, error.where, error.todo) from error
    finally:
        supervisor.release()
    return info.pid, info.url
