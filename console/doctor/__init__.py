"""`doctor`: run all checks of an installation. The checks change nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ajet_swarm.common.errors import AjetError
from console.doctor import card, local, remote
from console.doctor.finding import LIMIT, CheckContext, Finding
from console.doctor.judge import judges
from console.doctor.plugin import plugins

Check = Callable[[CheckContext], Awaitable[Sequence[Finding]]]


async def examine(context: CheckContext) -> list[Finding]:
    """Run all checks at once, each with a time limit, and return their findings in order."""

    def in_thread(check: Callable[[CheckContext], Iterable[Finding]]) -> Check:
        return lambda context: asyncio.to_thread(lambda: list(check(context)))

    checks: list[tuple[str, Check]] = [
        ("python", in_thread(local.python)),
        ("packages", in_thread(local.packages)),
        ("terminal", in_thread(local.terminal)),
        ("home", in_thread(local.home)),
        ("disk", in_thread(local.disk)),
        ("settings", in_thread(local.settings)),
        ("keys", in_thread(local.keys)),
        ("ports", in_thread(remote.ports)),
        ("proxy", remote.proxy),
        ("server", remote.servers),
        ("hooks", remote.hooks),
        ("judges", judges),
        ("plug-ins", in_thread(plugins)),
        ("card", in_thread(card.card)),
    ]
    results = await asyncio.gather(*(_bounded(area, check, context) for area, check in checks))
    return [finding for findings in results for finding in findings]


async def _bounded(area: str, check: Check, context: CheckContext) -> Sequence[Finding]:
    limit = card.LIMIT if area == "card" else LIMIT
    try:
        async with asyncio.timeout(limit):
            return await check(context)
    except TimeoutError:
        return [Finding(area, area, "fail", f"no answer within {limit:g} s")]
    except AjetError as error:
        where = f"{error.where}: " if error.where else ""
        return [Finding(area, area, "fail", f"{where}{error.what}", error.todo)]
    except (OSError, ValueError, LookupError, RuntimeError) as error:  # the others go on
        text = f"could not be checked: {type(error).__name__}: {error}"
        return [Finding(area, area, "warn", text)]
