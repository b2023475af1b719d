"""`doctor`: run all checks of an installation. Nothing is changed by them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ajet_swarm.common.errors import AjetError
from console.doctor import local, remote
from console.doctor.finding import LIMIT, CheckContext, Finding
from console.doctor.judge import judges

Check = Callable[[CheckContext], Awaitable[Sequence[Finding]]]


async def examine(context: CheckContext) -> list[Finding]:
    """Run all checks at once, each within its limit, and return their findings in order."""

    def still(look: Callable[[CheckContext], Sequence[Finding]]) -> Check:
        return lambda one: asyncio.to_thread(look, one)

    checks: list[tuple[str, Check]] = [
        ("python", still(local.python)),
        ("packages", still(local.packages)),
        ("terminal", still(local.terminal)),
        ("home", still(local.home)),
        ("disk", still(local.disk)),
        ("settings", still(local.settings)),
        ("keys", still(local.keys)),
        ("ports", still(remote.ports)),
        ("proxy", remote.proxy),
        ("server", remote.servers),
        ("hooks", remote.hooks),
        ("judges", judges),
    ]
    found = await asyncio.gather(*(_bounded(area, check, context) for area, check in checks))
    return [one for findings in found for one in findings]


async def _bounded(area: str, check: Check, context: CheckContext) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(LIMIT):
            return await check(context)
    except TimeoutError:
        return [Finding(area, area, "fail", f"no answer within {LIMIT:g} s")]
    except AjetError as error:
        where = f"{error.where}: " if error.where else ""
        return [Finding(area, area, "fail", f"{where}{error.what}", error.todo)]
    except (OSError, ValueError, LookupError, RuntimeError) as error:  # the others go on
        text = f"could not be checked: {type(error).__name__}: {error}"
        return [Finding(area, area, "warn", text)]
