"""Commands of the progress measurement: look, baseline, rewind, pause and resume, blind pairs.

Rewind of a server to the weights of its best verified step: the plan, and its execution.

The embedded engine restores a checkpoint. Any other server is started with a changed job: its model
is the folder with the verified weights, and its experiment is a new one, because a trainer resumes
the newest save of an experiment in place of the job's model.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ajet_swarm.common.text import content_text, known_names
from ajet_swarm.job.schema import EXPERIMENT, MODEL
from ajet_swarm.job.tree import dump_job, get, load_job, put
from core.commands import CommandError
from core.commands.plan_progress import require_verified
from core.commands.spec import Handler, NotNow
from core.control_payloads import JobInfo, RewindPlan
from core.events import GroupOpened, LookEnded, ProbePrompt
from core.state import Progress
from proxy.context import ProxyContext, ServerHandle
from proxy.control.group_commands import GroupCommands, opened_event
from proxy.control.job_commands import job_info
from proxy.control.job_store import JobStore
from proxy.evaluation.reaction import PAUSED_BY_OPERATOR, Execute, effect_of
from proxy.evaluation.saved_weights import (
    UNNAMED,
    NotPossible,
    checked_path,
    has_tokenizer,
    merge_command,
    model_in,
    step_of,
)
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.servers.extensions import CHECKPOINTS, offers

EXPERIMENT_OF_DEFAULT = "ajet-console"
"""Experiment name for a job without one."""
_LORA = "ajet.lora.lora_rank"
_SUFFIX = re.compile(r"-rewind-\d+-[0-9a-f]{1,8}\Z")
"""What an earlier rewind has appended to the experiment name."""
_PATH = "name the folder, or the model, as the path of the rewind"


async def rewind_plan(context: ProxyContext, server: ServerHandle, path: str = "") -> RewindPlan:
    """Return what a rewind of a server would do now, or why it is not possible.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        path: Folder or model with the weights, as the server names it; by default the checkpoint
            folder of the best verified step.

    Raises:
        AjetError: The path is invalid, or the server does not answer.
    """
    progress = context.bus.state.progress.get(server.name) or Progress()
    try:
        by_engine = bool(progress.verified) and await offers(server, CHECKPOINTS)
        path = checked_path(path) if path and not by_engine else path
        require_verified(server.name, progress, path, by_engine=by_engine)
        if by_engine:
            best = progress.best
            assert best is not None  # `require_verified`
            return _of_look(RewindPlan(server=server.name, weights=best.checkpoint), best)
        return await _job_plan(context, server, progress, path)
    except NotNow as error:
        return RewindPlan(
            server=server.name,
            step=progress.best_step,
            problem=error.what,
            todo=error.todo,
            command=error.command if isinstance(error, NotPossible) else "",
        )


def _of_look(plan: RewindPlan, look: LookEnded) -> RewindPlan:
    """Return a plan with the figures of its look and its id."""
    identity = "\0".join((look.look_id, plan.weights, plan.job))
    return replace(
        plan,
        look_id=look.look_id,
        step=look.step,
        effect=effect_of(look),
        plan_id=hashlib.sha256(identity.encode()).hexdigest()[:16],
    )


# --- a server given by URL -----------------------------------------------------------------------


async def _job_plan(
    context: ProxyContext, server: ServerHandle, progress: Progress, path: str
) -> RewindPlan:
    look = _look_of(path, progress)
    notes: list[str] = []
    model = await (_weights_at(path, look, notes) if path else _saved_weights(look))
    info = await job_info(context, server, JobStore.beside(context.journal.path))
    if not info.whole:
        raise NotPossible(
            "the job of this server is not known: another client sent it",
            "Send a complete job from here first, then rewind",
        )
    job = load_job(info.running)
    experiment = _new_experiment(str(get(job, EXPERIMENT) or ""), progress, look)
    put(job, MODEL, model)
    put(job, EXPERIMENT, experiment)
    loss = (*_losses(context, server, look, info, experiment, get(job, _LORA)), *notes)
    plan = RewindPlan(server=server.name, weights=model, before=info.running, loss=loss)
    return _of_look(replace(plan, job=dump_job(job)), look)


def _look_of(path: str, progress: Progress) -> LookEnded:
    """Return the verified look whose weights are restored.

    Raises:
        NotPossible: No verified look has the step that the path names.
    """
    verified = progress.verified
    if not path:
        assert progress.best is not None  # `require_verified`
        return progress.best
    step = step_of(path)
    if step is None:
        return verified[0]
    same_step = [look for look in verified if look.step == step]
    here = [look for look in same_step if look.saved_as and path.startswith(look.saved_as)]
    if not same_step:
        raise NotPossible(
            f"global_step_{step - 1} has the weights of step {step}, which no look verified",
            f"Verified: step {', '.join(str(look.step) for look in verified[:8])}. The folder of"
            " step N is global_step_N-1",
        )
    return max(here or same_step, key=lambda look: look.at)


async def _saved_weights(look: LookEnded) -> str:
    """Return the model folder of a look whose weights the job has saved.

    Raises:
        NotPossible: This machine cannot see a complete one.
    """
    folder = look.saved_as
    if step_of(folder) is None:  # the model that the run began with
        return folder
    actor = folder if folder.endswith("/actor") else f"{folder}/actor"
    if not folder.startswith("/"):
        held = "its `actor/huggingface`"
        why = "below the working directory of the server, which is not known here"
    elif (model := await asyncio.to_thread(model_in, folder)) is not None:
        return str(model)
    else:
        held = f"{actor}/huggingface there"
        why = (
            "which this machine cannot see: it is on another machine or in a container,"
            " or was deleted"
        )
    raise NotPossible(
        f"step {look.step} is saved as {folder}, {why}",
        f"If {held} holds config.json and safetensors, {_PATH}; otherwise merge it first, on the"
        " server's machine",
        merge_command(actor),
    )


async def _weights_at(path: str, look: LookEnded, notes: list[str]) -> str:
    """Return the model folder for a path from the operator; add what cannot be checked to `notes`.

    Raises:
        NotPossible: This machine can see the folder, and it holds no complete model.
    """
    if step_of(path) is None and path != look.saved_as:
        notes.append(
            f"The path does not name a step: it is taken as the weights of step {look.step}."
        )
    model = await asyncio.to_thread(model_in, path) if path.startswith("/") else None
    if model is None:
        notes.append("This machine cannot see the path: whether it holds a model is not checked.")
        return path
    if not has_tokenizer(model):
        notes.append("The folder holds no tokenizer; a trainer may need one.")
    return str(model)


def _new_experiment(name: str, progress: Progress, look: LookEnded) -> str:
    """Return an experiment name that no earlier run has: a trainer resumes a known experiment."""
    base = "" if name == UNNAMED else _SUFFIX.sub("", name)
    return f"{base or EXPERIMENT_OF_DEFAULT}-rewind-{progress.rewinds + 1}-{look.look_id[:8]}"


def _losses(
    context: ProxyContext,
    server: ServerHandle,
    look: LookEnded,
    info: JobInfo,
    experiment: str,
    lora: Any,
) -> list[str]:
    known = context.bus.state.servers.get(server.name)
    lines = ["The optimizer state and the position in the learning-rate schedule are lost."]
    if known is not None and known.step and look.step and known.engine_run == look.engine_run:
        given_up = known.step - look.step
        if given_up > 0:
            updates = "1 update" if given_up == 1 else f"{given_up} updates"
            lines.append(f"{updates} since step {look.step} are given up.")
    lines.append(
        f"The global step begins at 1 again, in the new experiment {experiment}; the checkpoints of"
        " the present one stay."
    )
    lines.append("A KL term pulls towards these weights from now on.")
    if lora:
        lines.append(
            "The job trains a LoRA adapter: it is lost, and a new one is trained on these weights."
        )
    if info.differs:
        lines.append(
            f"Another client has sent a job since: {', '.join(info.differs)} differ from the last"
            " job from here, and so may other values."
        )
    return lines


# --- execution -----------------------------------------------------------------------------------


async def rewind(service: MeasurementService, path: str = "", plan_id: str = "") -> str:
    """Rewind the server of a service; return a message.

    Args:
        service: The looks at the server.
        path: As in `rewind_plan`.
        plan_id: The plan that the operator has confirmed; empty for the present one.

    Raises:
        NotNow: It is not possible, or the confirmed plan no longer holds.
        AjetError: The server does not do it.
    """
    server = service.server
    plan = await rewind_plan(service.context, server, path)
    if plan.problem:
        todo = f"{plan.todo}: {plan.command}" if plan.command else plan.todo
        raise NotNow(plan.problem, server.name, todo)
    if plan_id and plan.plan_id != plan_id:
        what = "the rewind that was confirmed no longer holds: another look was verified, or the"
        todo = "Nothing was changed. Rewind again to see the present one"
        raise NotNow(f"{what} job changed", server.name, todo)
    progress = service.context.bus.state.progress[server.name]
    look = next(look for look in progress.verified if look.look_id == plan.look_id)
    return await service.reaction.rewind(look, plan.job, plan.weights if plan.job else "")


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
