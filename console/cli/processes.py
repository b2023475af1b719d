"""Commands that run as processes: the console, `engine` and `proxy`."""

import signal
import sys
from collections.abc import Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from console.cli.common import existing_home, open_home, say, settings_of
from console.cli.engine.backend import (
    TORCH,
    check_backend,
    check_device_present,
    engine_flags,
    have_own_model,
    have_smollm2,
    model_flags,
    torch_model,
)
from console.cli.options import BACKEND, SERVING, Args, flag, given, option, takes
from console.cli.output import output
from core.runtime.home import Home, missing_home
from core.runtime.tls import absolute_path
from core.settings import SMOLLM2, EngineSettings, Settings

ENDED = (128 + signal.SIGHUP, 128 + signal.SIGTERM)
"""Exit codes of a setup that was ended by a signal from outside."""


def console(args: Args) -> int:
    """Run the console.

    Raises:
        HomeError: with `--read-only` the home must exist, because it is not created.
    """
    home = existing_home(args)
    if not args.read_only or args.attach:
        home = open_home(args)
    elif not home.exists:
        raise missing_home(home)
    set_flags = given(args, SERVING)
    flags = model_flags(args.backend, args.model)
    settings = _proxy_settings(home, args, console__theme=args.theme, **flags)
    if args.keys:
        from console.cli.keys import show_keys

        return show_keys(settings.console.keys)
    attach: str | None = args.attach
    _check_attach(args, set_flags)
    watch_only = settings.proxy.watch_only and not attach
    if watch_only:
        _check_watchable(settings)
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
            attach=attach.rstrip("/").removesuffix("/v1") if attach else None,
            token_file=args.token_file,
            next_port=args.port is None,
            start_engine=start_engine,
            read_only=args.read_only,
            proxy_flags=frozenset(set_flags),
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
    option("--host", "ADDRESS", "address to listen on"),
    option("--port", "N", "port; 0 takes any free one", type=int),
    BACKEND,
    TORCH,
    flag("--yes", "download the model without asking; required without a terminal"),
    flag("--reset", "start from the base weights"),
    option(
        "--from",
        "NAME",
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
    flags = engine_flags(args)
    settings = settings_of(home, engine__host=args.host, engine__port=args.port, **flags)
    own = settings.engine
    check_backend(own, model=args.model, device=args.device or "", only_torch=given(args, TORCH))
    check_device_present(own, args.device or "")
    if not _have_model(home, own, args.yes):
        return 1
    if args.dry_run:
        return _would_run("the embedded engine", own.host, own.port, home)
    from core.runtime.log_format import setup
    from engine.main import EngineOptions, run
    from engine.torch.options import TorchOptions

    setup()
    return run(
        EngineOptions(
            home=home,
            model=own.model,
            torch=TorchOptions(
                model=torch_model(home, own),
                device=args.device or "",
                dtype=args.dtype or "",
                lora_rank=args.lora,
                full=args.full,
                context=args.context,
                max_memory=args.max_memory,
            )
            if own.backend == "torch"
            else None,
            host=own.host,
            port=own.port,
            reset=args.reset,
            start_from=args.start_from,
            faithful=args.faithful,
            strict_context=args.strict_context,
            allow_unauthenticated=args.allow_unauthenticated,
        )
    )


@takes(
    SERVING,
    option(
        "--api-key",
        "KEY",
        "the key itself; other users of this machine can read it, prefer --api-key-file",
    ),
    option(
        "--cors-origin",
        "URL",
        "web page that may use /v1 from a browser; repeatable, `*` for any",
        multiple=True,
    ),
    flag("--next-port", "take the next free port when the port is taken"),
    option(
        "--engine-starts-by",
        "UNIX_SECONDS",
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
    if settings.proxy.watch_only:
        _check_watchable(settings)
    if args.dry_run:
        return _would_run("the fake vLLM", settings.proxy.host, settings.proxy.port, home)
    from core.runtime.log_format import setup
    from proxy.main import ProxyOptions, run

    setup()
    options = ProxyOptions(
        home=home,
        settings=settings,
        allow_next_port=args.next_port,
        engine_starts_by=args.engine_starts_by,
    )
    return run(options)


def _have_model(home: Home, own: EngineSettings, yes: bool) -> bool:
    """Make sure that the engine's model is on this disk; False when the operator declined."""
    if own.backend != "torch":
        return True
    if own.model == SMOLLM2:
        return have_smollm2(home, yes)
    return have_own_model(torch_model(home, own), yes)


def _would_run(process: str, host: str, port: int, home: Home) -> int:
    """Say what would be started."""
    where = f"{host}:{port}" if port else f"a free port of {host}"
    say(output().plan(f"would start {process} on {where} in the home {home.root}"))
    return 0


def _check_watchable(settings: Settings) -> None:
    """Check that there is a swarm server to watch.

    Raises:
        UsageError: there is only an upstream.
    """
    if settings.upstream.url:
        raise UsageError(
            "--watch-only and --upstream exclude each other: an upstream has no engine to watch",
            todo="Name swarm servers with --swarm-url NAME=URL",
        )


def _check_attach(args: Args, set_flags: Sequence[str]) -> None:
    """Check the address to attach to, and that each option has an effect with it or without it.

    Raises:
        UsageError: it is no address, or an option is excluded or has no effect.
    """
    attach: str | None = args.attach
    if attach and web_address(attach) is None:
        raise UsageError("not an address", f"--attach {attach}", "Give http://HOST:PORT")
    if attach and args.watch_only:
        raise UsageError(
            "--attach and --watch-only exclude each other",
            todo="Attach with --read-only to watch a running proxy",
        )
    if attach is None:
        if args.token_file is not None:
            raise UsageError(
                "--token-file applies only with --attach",
                todo="Leave it out: a proxy of this home has its own token",
            )
        return
    unused = [flag for flag in set_flags if flag != "--tls-cert"]
    if unused:
        verb = "applies" if len(unused) == 1 else "apply"
        raise UsageError(
            f"{', '.join(unused)} {verb} to a proxy that is started here, and --attach starts none",
            todo="Give them to that proxy when it is started",
        )


def _url(url: str | None) -> str | None:
    return url.rstrip("/") if url else None


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
        "upstream__url": _url(args.upstream),
        "upstream__model": args.upstream_model,
        "upstream__key_file": _file(args.upstream_key_file),
        "rewards__hooks": _file(args.hooks),
        "rewards__file": _file(args.rewards),
    }
    return settings_of(home, args.swarm_url, **{**own, **more})
