"""Checks of the reward judges: key, URL and model of each."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ajet_swarm.common.text import one_line
from console.doctor.finding import CheckContext, Finding
from console.doctor.remote import PATIENCE, model_file

if TYPE_CHECKING:
    from proxy.rewards.judge.part import Judge


async def judges(context: CheckContext) -> Sequence[Finding]:
    """Check each judge of the rewards file; return nothing when there is no judge.

    The check lists the server's models; when the judge's model is not among them, it requests a
    completion of one word.
    """
    loaded = await asyncio.to_thread(_load, context)
    if isinstance(loaded, Finding):
        return [loaded]
    return list(await asyncio.gather(*(check_judge(judge) for judge in loaded)))


def _load(context: CheckContext) -> "list[Judge] | Finding":
    """Return the active judges, or a finding when the file cannot be read."""
    own, file = context.settings, model_file(context)
    if own is None or file is None:
        return []
    named = own.rewards.file
    if not file.is_file():
        todo = "Give the file with --rewards, or remove rewards.file from the settings"
        missing = Finding("judges", "rewards", "fail", f"there is no file {file}", todo)
        return missing if named else []
    from proxy.rewards.judge.part import Judge
    from proxy.rewards.model.file import ModelFault, load, make
    from proxy.rewards.part import PartEnvironment
    from proxy.rewards.select import own_server

    try:
        model = load(file)
        parts = [make(part, model, file.parent) for part in model.active if part.kind == "judge"]
    except ModelFault as fault:
        at = f"{fault.file}:{fault.line}" if fault.line else str(file)
        text = one_line(f"{at}: {fault.cause}", 300)
        todo = "Correct the file: until it loads, groups get no automatic reward"
        return Finding("hooks", "rewards", "fail", text, todo)
    environment = PartEnvironment(own=own_server(own.upstream)) if parts else PartEnvironment()
    found = [part for part in parts if isinstance(part, Judge)]
    for judge in found:
        judge.place(environment)
    return found


async def check_judge(judge: "Judge") -> Finding:
    """Check one judge and close it."""
    from proxy.rewards.judge.settings import JudgeFault

    name = one_line(judge.options.name, 30)
    try:
        async with asyncio.timeout(PATIENCE):
            works = await judge.probe()
    except TimeoutError:
        text = f"{judge.options.url}: no answer in {PATIENCE:g} s"
        todo = "Check that it runs and that this machine can reach it"
        return Finding("judges", name, "fail", text, todo)
    except JudgeFault as fault:
        return Finding("judges", name, "fail", one_line(fault.text, 300), fault.todo)
    finally:
        await judge.close()
    return Finding("judges", name, "ok", one_line(works, 300))
