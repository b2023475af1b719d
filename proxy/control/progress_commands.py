"""Commands of the progress measurement: look, baseline, rewind, pause and resume, blind pairs."""

from collections.abc import Mapping

from ajet_swarm.common.text import content_text, known_names
from core.commands import CommandError
from core.commands.refusal import NotNow
from core.commands.spec import Handler
from core.events import GroupOpened, ProbePrompt
from proxy.control.group_commands import GroupCommands, opened_event
from proxy.control.rewind import rewind
from proxy.evaluation.reaction import PAUSED_BY_OPERATOR, Execute
from proxy.evaluation.service import Evaluation, MeasurementService


class ProgressCommands:
    """The commands of one proxy; see `proxy.evaluation`.

    Args:
        evaluation: The looks at the probe sets.
        execute: Executes a command: restores checkpoints, applies jobs.
        group_commands: Finds groups.
    """

    def __init__(
        self, evaluation: Evaluation, execute: Execute, group_commands: GroupCommands
    ) -> None:
        self._group_commands = group_commands
        self._services = evaluation.services
        for service in self._services.values():
            service.reaction.execute = execute
        of = self._service
        self.table: Mapping[str, Handler] = {
            "group.pin": self._pin,
            "progress.look": lambda server="": of(server).demand("look"),
            "progress.trust": lambda server="": of(server).demand("baseline"),
            "progress.rewind": lambda server="", **args: rewind(of(server), **args),
            "progress.pause": lambda server="": of(server).reaction.pause(PAUSED_BY_OPERATOR),
            "progress.resume": lambda server="": of(server).reaction.resume(),
            "progress.pair": lambda server="", **args: of(server).pairs.pair(**args),
            "progress.vote": lambda server="", **args: of(server).pairs.vote(**args),
        }

    async def _pin(self, group_id: str) -> str:
        """Add the prompt of a group to the probe set of its server."""
        group = await self._group_commands.find_any(group_id)
        prompt = prompt_of(await opened_event(self._group_commands.context, group_id))
        return await self._service(group.server).pin([prompt])

    def _service(self, server: str) -> MeasurementService:
        name = server or next(iter(self._services), "")
        if name not in self._services:
            what = f"there is no server `{name}` that is trained"
            raise CommandError(what, todo=known_names(name, self._services))
        return self._services[name]


def prompt_of(opened: GroupOpened) -> ProbePrompt:
    """Return the request of a group as a prompt of the probe set.

    Raises:
        NotNow: The request offers tools, or does not end with a text of the user.
    """
    messages = opened.body.get("messages") or []
    last = messages[-1] if messages else {}
    text = content_text(last.get("content")) if isinstance(last, dict) else ""
    if not isinstance(last, dict) or last.get("role") != "user" or not text.strip():
        raise NotNow("its request does not end with a text of the user", opened.group_id)
    if opened.body.get("tools"):
        raise NotNow("its request offers tools, which looks do not", opened.group_id)
    return ProbePrompt(
        id=f"group-{opened.group_id}",
        prompt=text,
        before=tuple(messages[:-1]),
        reference=opened.reference or "",
    )
