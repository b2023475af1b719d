"""What `doctor` finds out: one finding a line, with what to do about it. Nothing is changed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home
from core.settings import Settings

Level = Literal["ok", "warn", "fail"]
LIMIT = 4.0
"""Seconds any one check may take."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    area: str
    """python, terminal, ports, home, server, keys, hooks, judges, disk or packages."""
    name: str
    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at."""

    home: Home
    """Not opened: it need not exist."""
    settings: Settings | None
    """None when they cannot be read."""
    trouble: str = ""
    """Why not."""
    hooks: Path | None = None
    url: str = ""
    """A proxy to ask instead of the home's own."""
    token_file: Path | None = None
    servers: dict[str, str] = field(default_factory=dict)


Check = Callable[[Patient], "Awaitable[Sequence[Finding]]"]


async def examine(patient: Patient) -> list[Finding]:
    """Run all checks, each within its limit, and keep their order."""
    from console.doctor import local as here
    from console.doctor import remote as reach
    from console.doctor.judge import judges

    def still(look: Callable[[Patient], Sequence[Finding]]) -> Check:
        return lambda one: asyncio.to_thread(look, one)

    checks: list[tuple[str, Check]] = [
        ("python", still(here.python)),
        ("packages", still(here.packages)),
        ("terminal", still(here.terminal)),
        ("home", still(here.home)),
        ("disk", still(here.disk)),
        ("settings", still(here.settings)),
        ("keys", still(here.keys)),
        ("ports", still(reach.ports)),
        ("proxy", reach.proxy),
        ("server", reach.servers),
        ("hooks", reach.hooks),
        ("judges", judges),
    ]
    found = await asyncio.gather(*(_bounded(area, check, patient) for area, check in checks))
    return [one for findings in found for one in findings]


async def _bounded(area: str, check: Check, patient: Patient) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(LIMIT):
            return await check(patient)
    except TimeoutError:
        return [Finding(area, area, "fail", f"no answer within {LIMIT:g} s")]
    except AjetError as error:
        where = f"{error.where}: " if error.where else ""
        return [Finding(area, area, "fail", f"{where}{error.what}", error.todo)]
    except (OSError, ValueError, LookupError, RuntimeError) as error:  # the others go on
        text = f"could not be checked: {type(error).__name__}: {error}"
        return [Finding(area, area, "warn", text)]
