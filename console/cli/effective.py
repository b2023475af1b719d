"""The effective settings: those of the running proxy, else those of the home."""

import asyncio
import sys

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import connected, proxy_url, settings_of
from console.cli.options import Args
from core.runtime.home import Home
from core.runtime.secrets import proxy_key
from core.settings import Settings
from core.settings.effective import HIDDEN, EffectiveSettings

LIMIT = 5.0
"""Seconds a proxy gets to answer."""


def of_proxy(args: Args, home: Home) -> EffectiveSettings | None:
    """Return the settings of the named proxy, or of the one that runs in the home.

    Returns:
        None when no proxy runs, or when its version does not report its settings.

    Raises:
        AjetError: the proxy does not answer, or refuses the token.
    """
    url = proxy_url(args, home)
    return asyncio.run(_ask(args, url)) if url else None


async def _ask(args: Args, url: str) -> EffectiveSettings | None:
    from proxy.control.client import ControlError, ControlLost

    try:
        async with asyncio.timeout(LIMIT), connected(args, url) as client:
            return await client.settings()
    except ControlError as error:
        if error.status == 404:
            return None
        raise
    except TimeoutError as error:
        todo = "Start it again, or name another with --url"
        raise ControlLost(f"the proxy does not answer within {LIMIT:g} s", url, todo) from error


def effective(args: Args, home: Home) -> Settings:
    """Return the settings of the running proxy; without one, those of the home.

    When the proxy does not answer, a note on standard error names it.
    """
    try:
        running = of_proxy(args, home)
    except AjetError as error:
        running = None
        note = f"using the settings of this home, because the proxy's are unknown: {error}"
        sys.stderr.write(f"ajet-console: {one_line(note, 300)}\n")
    return settings_of(home) if running is None else running.settings


def client_key(settings: Settings, home: Home) -> str:
    """Return the key that `/v1` of the proxy requires; empty when it requires none.

    Args:
        settings: The effective settings.
        home: Its settings contain the key when the proxy does not report it.

    Raises:
        UsageError: the key file cannot be read, or only the proxy has the key.
    """
    key = proxy_key(settings.proxy)
    if key != HIDDEN:
        return key
    own = proxy_key(settings_of(home).proxy)
    if not own:
        raise UsageError(
            "the proxy requires a key that is neither in a file nor in the settings of this home",
            todo="Start the proxy with --api-key-file FILE instead of --api-key",
        )
    return own
