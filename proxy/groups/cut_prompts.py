"""Prompts that an engine truncated to its window: their groups, and the alert about them."""

from collections import defaultdict, deque

from ajet_swarm.api.outcomes import ChatAnswer
from core.events.alerts import PromptsCut
from proxy.alerts import clear_alert, show_alert
from proxy.groups.run import GroupRun

RECENT = 20
"""Number of groups of a server without a truncated prompt after which the alert is cleared."""


def was_cut(answer: ChatAnswer) -> bool:
    """Return whether the engine dropped the middle of the prompt; only the embedded engine reports
    it."""
    info = answer.parsed.get("ajetc")
    return bool(info.get("truncated")) if isinstance(info, dict) else False


class CutPrompts:
    """Raises an alert while the prompts of the groups of a server are truncated."""

    def __init__(self) -> None:
        self._recent: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=RECENT))
        """Ids of the newest groups of a server, empty for those without a truncated prompt."""

    def cause(self, run: GroupRun) -> str:
        """Return why a group is not trained on; empty if its prompt was not cut, or if that is
        allowed.

        Called once for each group, after its answers have arrived.
        """
        cut = False
        for one in run.usable:
            if one.answer is not None and "ajetc" in one.answer.parsed:
                cut = cut or was_cut(one.answer)
        recent = self._recent[run.facts.server.name]
        recent.append(run.group_id if cut else "")
        key, bus = f"cut:{run.facts.server.name}", run.context.bus
        sent = run.context.settings.rewards.cut_prompts == "send"
        if cut:
            size = run.facts.server.info.context or 0
            window = f"{size} tokens" if size else "the engine's window"
            params = PromptsCut(window=size, trained=sent)
            show_alert(bus, key, params, groups=filter(None, recent))
            return "" if sent else f"prompt cut to {window}: not trained on"
        if not any(recent):
            clear_alert(bus, key)
        return ""
