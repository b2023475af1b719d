"""What follows a verdict, and what the operator does about it: alert, pause, rewind."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.events import LookEnded, Rewound, TrainingPaused, TrainingResumed
from core.events.alerts import params_of
from core.state import Progress
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import CHECKPOINTS, offers

log = logging.getLogger(__name__)

PAUSED_BY_OPERATOR = "paused by the operator"

Execute = Callable[[str, dict[str, Any]], Awaitable[tuple[str, dict[str, Any]]]]
"""Executes a command by its name, with its arguments."""


def effect_of(look: LookEnded) -> float | None:
    """Return by how much a look is better than its baseline; None for a baseline."""
    return look.verdict.effect - look.verdict.reference if look.verdict is not None else None


class Reaction:
    """Pauses, resumes and rewinds the training of one server.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        wake: Set after a rewind: a look may be due.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle, wake: asyncio.Event) -> None:
        self._context = context
        self._server = server
        self._wake = wake
        self.rewinding = False
        """The weights are being replaced: no look begins."""
        self.execute: Execute | None = None
        """Restores a checkpoint or applies a job, and starts the engine."""

    @property
    def _progress(self) -> Progress:
        return self._context.bus.state.progress.get(self._server.name) or Progress()

    async def rewind(self, look: LookEnded, job: str = "", model: str = "") -> str:
        """Put the server back to the weights of a verified look; return a message.

        No measurement begins while the weights are replaced.

        Args:
            look: The look; it has a checkpoint if there is no job.
            job: A job with the weights; empty to restore the checkpoint.
            model: The model of that job.

        Raises:
            AjetError: The engine does not restore it, or does not start with the job.
        """
        assert self.execute is not None
        name, args = "engine.restore", {"name": look.checkpoint}
        if job:
            name, args = "engine.apply", {"job": job}
        self.rewinding = True
        try:
            result, _ = await self.execute(name, {"server": self._server.name, **args})
            self.rewound(look.look_id, model or look.checkpoint, model)
        finally:
            self.rewinding = False
            self._wake.set()
        effect = effect_of(look)
        why = "the baseline" if effect is None else f"better by {effect:.2f}"
        return f"{result}; step {look.step}: {why}"

    def rewound(self, look_id: str, restored: str, model: str = "") -> None:
        """Record a rewind: the comparison continues, and a pause by the verdict ends.

        Args:
            look_id: The verified look whose weights were restored.
            restored: Name of the checkpoint, or folder or name of the model.
            model: Model of the job that was sent for it; empty for a checkpoint.
        """
        progress, name = self._progress, self._server.name
        look = next((look for look in progress.looks if look.look_id == look_id), None)
        self._context.bus.publish(
            Rewound(
                server=name,
                look_id=look_id,
                step=look.step if look is not None else None,
                baseline_id=progress.baseline.look_id if progress.baseline is not None else "",
                restored=restored,
                model=model,
            )
        )
        what = f"the job has the model {model}" if model else f"restored from {restored}"
        step = "the baseline" if look is None or look.step is None else f"step {look.step}"
        log.info("%s: rewound to the weights of %s: %s", name, step, one_line(what, 300))
        self.clear_alerts("the server was rewound")
        if self._server.paused not in ("", PAUSED_BY_OPERATOR):
            self.resume()

    def clear_alerts(self, cause: str) -> None:
        """Clear the alerts about the policy: it is another one, or compared with another one."""
        for kind in ("worse", "below_best", "worse_parts"):
            clear_alert(self._context.bus, f"{kind}:{self._server.name}", cause)

    def _alert(self, kind: str, fields: Mapping[str, Any] | None) -> None:
        """Raise the alert of a kind with these fields; clear it for None."""
        bus, name = self._context.bus, self._server.name
        if fields is None:
            clear_alert(bus, f"{kind}:{name}")
        else:
            show_alert(bus, f"{kind}:{name}", params_of(kind, server=name, **fields), server=name)

    def pause(self, cause: str) -> str:
        """Stop training on requests; return a message."""
        if not self._server.paused:
            self._server.paused = cause
            self._context.bus.publish(TrainingPaused(server=self._server.name, cause=cause))
            log.warning("%s: training is paused: %s", self._server.name, cause)
            self.alert_of_pause()
        return f"{self._server.name}: requests do not train"

    def alert_of_pause(self) -> None:
        """Raise the alert about a pause; do nothing if training is not paused."""
        if reason := self._server.paused:
            self._alert("paused", {"reason": reason})

    def resume(self) -> str:
        """Train on requests again; return a message."""
        if not self._server.paused:
            return f"{self._server.name}: training is not paused"
        self._server.paused = ""
        self._context.bus.publish(TrainingResumed(server=self._server.name))
        log.info("%s: training is resumed", self._server.name)
        self._alert("paused", None)
        return f"{self._server.name}: requests are trained on again"

    async def take(self, ended: LookEnded) -> None:
        """Raise or clear the alerts; pause or rewind after `worse`, as the settings demand."""
        if ended.outcome != "complete":
            return
        verdict, compared, best = ended.verdict, ended.against_best, self._progress.best
        outcome = verdict.outcome if verdict is not None else ""
        about = {
            "step": ended.step,
            "best": best.step if best is not None else self._progress.best_step,
        }
        below_best = None
        if compared is not None and compared.below:
            below_best = about | {
                "below": -compared.effect,
                "least": -compared.high,
                "most": -compared.low,
                "than": compared.step,
            }
        self._alert("below_best", below_best)
        parts = tuple(part for part in ended.parts if part.worse_unseen)
        unseen = {"step": ended.step, "parts": parts, "verdict": outcome}
        self._alert("worse_parts", unseen if parts else None)
        if verdict is None or outcome != "worse":
            self._alert("worse", None)
            return
        below = verdict.reference - verdict.effect
        reaction = self._context.settings.probe.on_worse
        if reaction != "alert":
            self.pause(f"step {ended.step} is worse than the baseline by {below:.2f}")
        if reaction == "rewind":
            try:  # only a checkpoint of the engine is restored without the operator
                saved = best is not None and best.checkpoint
                if best is not None and saved and await offers(self._server, CHECKPOINTS):
                    await self.rewind(best)
                    return
            except AjetError as error:
                log.error("%s was not rewound: %s", self._server.name, error)
        self._alert("worse", about | {"below": below, "paused": bool(self._server.paused)})
