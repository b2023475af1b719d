"""Commands that are processes of their own: console, engine, proxy."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from console.cli.common import look_home, open_home, settings_of
from console.cli.model import have_model
from console.cli.options import PROXY_FLAGS
from core.runtime.home import Home, missing_home
from core.runtime.tls import absolute_path
from core.settings import Settings


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine`."""
    parser.set_defaults(handler=engine)
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on")
    parser.add_argument("--port", type=int, metavar="N", help="port; 0 takes any free one")
    parser.add_argument(
        "--model",
        choices=("tiny", "smollm2"),
        help="what is trained: the shipped policy, or SmolLM2-135M, which is fetched first "
        "(93 MB, after a yes)",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="fetch the model without asking; needed without a terminal",
    )
    parser.add_argument("--reset", action="store_true", help="go back to the base weights")
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar="NAME",
        help="continue from this checkpoint; see `ajet-console checkpoints`",
    )
    parser.add_argument(
        "--faithful",
        action="store_true",
        help="behave as the real AgentJet server, its faults included: for testing clients",
    )
    parser.add_argument(
        "--strict-context",
        action="store_true",
        help="refuse a prompt over the window instead of dropping its middle",
    )
    parser.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        help="listen where others can reach it, although the swarm protocol has no key",
    )


def add_proxy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `proxy`."""
    parser.set_defaults(handler=proxy)
    for flag, options in PROXY_FLAGS.items():
        parser.add_argument(flag, **options)
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="the key itself; others on this machine can read it here, prefer --api-key-file",
    )
    parser.add_argument(
        "--cors-origin",
        action="append",
        metavar="URL",
        help="web page that may use /v1 from a browser; repeat it for several, `*` for any",
    )
    parser.add_argument(
        "--next-port", action="store_true", help="take the next free port when it is taken"
    )


def console(given: argparse.Namespace) -> int:
    """The console.

    Raises:
        HomeError: `--read-only`, and there is no home: it makes none.
    """
    home = look_home(given)
    if not given.console_read_only or given.console_attach:
        home = open_home(given)
    elif not home.exists:
        raise missing_home(home)
    settings = _proxy_settings(
        home,
        given.console_swarm_url,
        given.console_hooks,
        proxy__host=given.console_host,
        proxy__port=given.console_port,
        upstream__url=_url(given.console_upstream),
        upstream__model=given.console_upstream_model,
        upstream__key_file=_file(given.console_upstream_key_file),
        proxy__api_key_file=_file(given.console_api_key_file),
        proxy__tls_cert=_file(given.console_tls_cert),
        proxy__tls_key=_file(given.console_tls_key),
        proxy__watch_only=given.console_watch_only or None,
        console__theme=given.console_theme,
    )
    if given.console_keys:
        from console.cli.keys import show_keys

        return show_keys(settings.console.keys)
    attach: str | None = given.console_attach
    if attach and web_address(attach) is None:
        raise UsageError("not an address", f"--attach {attach}", "Give http://HOST:PORT")
    if attach and given.console_watch_only:
        raise UsageError(
            "--attach and --watch-only exclude each other",
            todo="Attach with --read-only to watch a running proxy",
        )
    watch_only = settings.proxy.watch_only and not attach
    if watch_only:
        _only_watch(settings)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the console needs a terminal",
            todo="Without one use `ajet-console engine`, `proxy`, `mock` and `status`",
        )
    looks_on = bool(given.console_no_engine or given.console_read_only or watch_only)
    starts = not (attach or looks_on)
    embedded = "embedded" in settings.servers().values()
    if starts and embedded and not have_model(home, settings.engine.model, yes=False):
        return 1
    from console.app import run_console
    from console.backend.options import ConsoleOptions

    return run_console(
        ConsoleOptions(
            home=home,
            settings=settings,
            attach=attach.rstrip("/").removesuffix("/v1") if attach else None,
            token_file=given.console_token_file,
            next_port=given.console_port is None,
            start_engine=not looks_on,
            read_only=given.console_read_only,
            swarm_given=bool(given.console_swarm_url or given.console_upstream),
            hooks_given=bool(given.console_hooks),
        )
    )


def engine(given: argparse.Namespace) -> int:
    """The embedded engine."""
    home = open_home(given)
    settings = settings_of(
        home, engine__host=given.host, engine__port=given.port, engine__model=given.model
    )
    if not have_model(home, settings.engine.model, given.yes):
        return 1
    from core.runtime.log_format import setup
    from engine.main import EngineOptions, run

    setup()
    return run(
        EngineOptions(
            home=home,
            model=settings.engine.model,
            host=settings.engine.host,
            port=settings.engine.port,
            reset=given.reset,
            start_from=given.start_from,
            faithful=given.faithful,
            strict_context=given.strict_context,
            allow_unauthenticated=given.allow_unauthenticated,
        )
    )


def proxy(given: argparse.Namespace) -> int:
    """The fake vLLM, headless."""
    if given.api_key and given.api_key_file:
        raise UsageError("--api-key and --api-key-file exclude each other", todo="Give the file")
    home = open_home(given)
    settings = _proxy_settings(
        home,
        given.swarm_url,
        given.hooks,
        proxy__host=given.host,
        proxy__port=given.port,
        upstream__url=_url(given.upstream),
        upstream__model=given.upstream_model,
        upstream__key_file=_file(given.upstream_key_file),
        proxy__api_key=given.api_key,
        proxy__api_key_file="" if given.api_key else _file(given.api_key_file),
        proxy__tls_cert=_file(given.tls_cert),
        proxy__tls_key=_file(given.tls_key),
        proxy__cors_origins=",".join(given.cors_origin) if given.cors_origin else None,
        proxy__watch_only=given.watch_only or None,
        rewards__file=_file(given.rewards),
    )
    if settings.proxy.watch_only:
        _only_watch(settings)
    from core.runtime.log_format import setup
    from proxy.main import ProxyOptions, run

    setup()
    return run(ProxyOptions(home=home, settings=settings, allow_next_port=given.next_port))


def _only_watch(settings: Settings) -> None:
    """Raises UsageError: there is no swarm server to watch."""
    if settings.upstream.url:
        raise UsageError(
            "--watch-only and --upstream exclude each other: an upstream has no engine to watch",
            todo="Name swarm servers with --swarm-url NAME=URL",
        )


def _url(given: str | None) -> str | None:
    return given.rstrip("/") if given else None


def _file(given: str | None) -> str | None:
    return absolute_path(given) if given else None


def _proxy_settings(
    home: Home, urls: list[str] | None, hooks: str | None, **flags: Any
) -> Settings:
    folder = str(Path(hooks).expanduser().absolute()) if hooks else None
    return settings_of(home, urls, rewards__hooks=folder, **flags)
