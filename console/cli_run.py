"""Commands that are processes of their own: console, engine, proxy, mock user."""

import argparse
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from console.cli_common import NotRunning, cert_of, open_home, proxy_url, settings_of, token_of
from console.cli_model import have_model
from core.errors import UsageError
from core.events import Event
from core.home import Home
from core.settings import Settings
from core.tls import absolute


def console(given: argparse.Namespace) -> int:
    """The console."""
    home = open_home(given)
    settings = _proxy_settings(
        home,
        given.console_swarm_url,
        given.console_hooks,
        proxy__host=given.console_host,
        proxy__port=given.console_port,
        upstream__url=_url(given.console_upstream),
        upstream__model=given.console_upstream_model,
        upstream__key_file=_file(given.console_upstream_key_file),
        proxy__tls_cert=_file(given.console_tls_cert),
        proxy__tls_key=_file(given.console_tls_key),
        console__theme=given.console_theme,
    )
    attach: str | None = given.console_attach
    if attach and not attach.startswith(("http://", "https://")):
        raise UsageError("not an address", f"--attach {attach}", "Give http://HOST:PORT")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the console needs a terminal",
            todo="Without one use `ajet-console engine`, `proxy`, `mock` and `status`",
        )
    starts = not (attach or given.console_no_engine or given.console_read_only)
    embedded = "embedded" in settings.servers().values()
    if starts and embedded and not have_model(home, settings.engine.model, yes=False):
        return 1
    from console.app import run_console
    from console.options import ConsoleOptions

    return run_console(
        ConsoleOptions(
            home=home,
            settings=settings,
            attach=attach.rstrip("/").removesuffix("/v1") if attach else None,
            token_file=given.console_token_file,
            next_port=given.console_port is None,
            start_engine=not (given.console_no_engine or given.console_read_only),
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
    from core.logs import setup
    from engine.serve import EngineOptions, run

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
        proxy__tls_cert=_file(given.tls_cert),
        proxy__tls_key=_file(given.tls_key),
        proxy__cors_origins=",".join(given.cors_origin) if given.cors_origin else None,
    )
    from core.logs import setup
    from proxy.serve import ProxyOptions, run

    setup()
    return run(ProxyOptions(home=home, settings=settings, allow_next_port=given.next_port))


def mock(given: argparse.Namespace) -> int:
    """The mock user."""
    home = open_home(given)
    settings = settings_of(
        home,
        mock__dataset=given.dataset,
        mock__concurrency=given.concurrency,
        mock__pace=given.pace,
        mock__passes=given.passes,
        mock__timeout=given.timeout,
    )
    url = proxy_url(given, home)
    if not (url or given.base_url):
        raise NotRunning(
            "there is nothing to ask: no proxy runs in this home",
            str(home.root),
            "Start `ajet-console` or `ajet-console proxy`, or give --base-url",
        )
    from core.logs import setup
    from mock.dataset import shipped
    from mock.runner import Pace
    from mock.user_requests import MockOptions, run

    setup()
    own = settings.mock
    cert = cert_of(home)
    options = MockOptions(
        home=home,
        dataset=Path(own.dataset).expanduser() if own.dataset else shipped(),
        base_url=given.base_url or f"{url}/v1",
        target=given.base_url or "proxy",
        api_key=given.api_key or ("" if given.base_url else settings.proxy.api_key),
        cert=cert,
        model=given.model,
        timeout=own.timeout,
        pace=Pace(
            concurrency=own.concurrency,
            seconds=own.pace,
            passes=own.passes,
            seed=given.seed,
        ),
        restart=given.restart,
    )
    if not url:
        return run(options)
    token = token_of(given, home)
    return run(options, lambda: _control(url, token, cert))


@asynccontextmanager
async def _control(url: str, token: str, cert: str) -> AsyncIterator["_Control"]:
    from proxy.client import ControlClient

    async with ControlClient(url, token, cert=cert) as client:
        yield _Control(client)


class _Control:
    """The proxy's control API as the mock user wants it: with its own errors."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def register_row(self, row: Mapping[str, Any]) -> str:
        return str(await self._ask("register_row", row))

    async def directive(self, mock_id: str) -> str:
        return str(await self._ask("directive", mock_id))

    async def post_fact(self, fact_id: str, event: Event) -> None:
        await self._ask("post_fact", fact_id, event)

    async def _ask(self, name: str, *args: Any) -> Any:
        from mock.runner import ControlDown, ControlRefused
        from proxy.client import ControlError, ControlLost

        try:
            return await getattr(self._client, name)(*args)
        except ControlLost as error:
            raise ControlDown(error.what, error.where, error.todo) from error
        except ControlError as error:
            if error.status >= 500:
                raise ControlDown(error.what, error.where, error.todo) from error
            raise ControlRefused(error.what, error.where, error.todo, error.status) from error


def _url(given: str | None) -> str | None:
    return given.rstrip("/") if given else None


def _file(given: str | None) -> str | None:
    return absolute(given) if given else None


def _proxy_settings(
    home: Home, urls: list[str] | None, hooks: str | None, **flags: Any
) -> Settings:
    folder = str(Path(hooks).expanduser().absolute()) if hooks else None
    return settings_of(home, urls, rewards__hooks=folder, **flags)
