"""The effective settings of the proxy that a command talks to, or of its home without one."""

import argparse
import asyncio
import sys

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import cert_of, proxy_url, settings_of, token_of
from core.runtime.home import Home
from core.runtime.secrets import proxy_key
from core.settings import Settings
from core.settings.effective import HIDDEN, EffectiveSettings

LIMIT = 5.0
"""Seconds a proxy gets to answer."""


def of_proxy(given: argparse.Namespace, home: Home) -> EffectiveSettings | None:
    """What the named proxy, or the one that runs in the home, was started with.

    Returns:
        None when no proxy runs, or it is of a version that does not report its settings.

    Raises:
        AjetError: it does not answer, or refuses the token.
    """
    url = proxy_url(given, home)
    return asyncio.run(_ask(given, home, url)) if url else None


async def _ask(given: argparse.Namespace, home: Home, url: str) -> EffectiveSettings | None:
    from proxy.control.client import ControlClient, ControlError, ControlLost

    try:
        async with (
            asyncio.timeout(LIMIT),
            ControlClient(url, token_of(given, home), cert=cert_of(home)) as client,
        ):
            return await client.settings()
    except ControlError as error:
        if error.status == 404:
            return None
        raise
    except TimeoutError as error:
        todo = "Start it again, or name another with --url"
        raise ControlLost(f"the proxy does not answer within {LIMIT:g} s", url, todo) from error


def effective(given: argparse.Namespace, home: Home) -> Settings:
    """The settings of the running proxy; those of the home when there is none to ask.

    A proxy that does not answer is named on standard error.
    """
    try:
        found = of_proxy(given, home)
    except AjetError as error:
        found = None
        note = f"settings of this home are used, those of the proxy are not known: {error}"
        sys.stderr.write(f"ajet-console: {one_line(note, 300)}\n")
    return settings_of(home) if found is None else found.settings


def client_key(settings: Settings, home: Home) -> str:
    """The key that `/v1` of the proxy requires; empty for none.

    Args:
        settings: As of `effective`.

    Raises:
        UsageError: its file cannot be read here, or it was given to the proxy alone.
    """
    key = proxy_key(settings.proxy)
    if key != HIDDEN:
        return key
    own = proxy_key(settings_of(home).proxy)
    if not own:
        raise UsageError(
            "the proxy requires a key, which is in no file and not in the settings of this home",
            todo="Start the proxy with --api-key-file FILE instead of --api-key",
        )
    return own
