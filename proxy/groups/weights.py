"""Version of the weights that answer a user: recorded at the claim, checked at the answer."""

from ajet_swarm.api.outcomes import ChatAnswer
from proxy.groups.run import Candidate, GroupRun


def note_claim(run: GroupRun, slot: Candidate) -> None:
    """Record the weights that the server has when it grants the episode of a slot."""
    known = run.context.bus.state.servers.get(run.facts.server.name)
    slot.step = slot.claimed_step = run.facts.server.watcher.current.step
    slot.later_step = None
    slot.training_run = 0 if known is None else known.run_number


def note_answer(run: GroupRun, slot: Candidate, answer: ChatAnswer) -> None:
    """Correct the step of a slot by the server's own report, or record that the step changed.

    A reading of the step may be as old as the period of the watcher, so an episode may have been
    granted under the next step already.
    """
    if (reported := reported_step(answer)) is not None:
        slot.step, slot.later_step = reported, None
        return
    now = run.facts.server.watcher.current.step
    slot.later_step = now if slot.step is not None and now != slot.step else None


def reported_step(answer: ChatAnswer) -> int | None:
    """Return the global step whose weights produced an answer; None if the server does not report
    it.

    The embedded engine reports the number of updates in its weights; the global step counts the
    update that is being collected for.
    """
    info = answer.parsed.get("ajetc")
    updates = info.get("step") if isinstance(info, dict) else None
    return updates + 1 if isinstance(updates, int) and not isinstance(updates, bool) else None
