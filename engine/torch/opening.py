"""Opens the torch policy of the selected experiment."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from engine.interface import PolicyBackend
from engine.policy.futures import call_on_loop
from engine.server.job import Job
from engine.server.policy_holder import PolicyFactory
from engine.storage.experiments import Experiments
from engine.torch.options import DEFAULT_RANK, TorchOptions
from engine.torch.packages import quiet, require


def torch_policy(
    options: TorchOptions,
    experiments: Experiments,
    job: Callable[[], Job | None],
    report: Callable[[str], None],
) -> PolicyFactory:
    """Return a factory of the policy.

    Args:
        options: What the engine was started with.
        experiments: Names the folder of the trained part.
        job: Returns the job that the engine was started with, if any.
        report: Called on the event loop with each step of an opening, which may take minutes.
    """

    async def open_policy(reset: bool) -> PolicyBackend:
        step = partial(call_on_loop, asyncio.get_running_loop(), report)
        present = job() or Job()
        return await asyncio.to_thread(_open, options, experiments.folder, present, reset, step)

    return open_policy


def _open(
    options: TorchOptions, folder: Path, job: Job, reset: bool, report: Callable[[str], object]
) -> PolicyBackend:
    model = options.model or job.model_path
    if not model:
        raise UsageError(
            "no model is named", "ajet.model.path", "Name one in the job or with --model"
        )
    report("loads PyTorch and transformers")
    require(gguf=model.endswith(".gguf"))
    quiet()
    from engine.torch.loading import TrainingForm, load
    from engine.torch.policy import TorchPolicy
    from engine.torch.store import TorchStore

    rank = 0 if options.full else options.lora_rank or job.lora_rank or DEFAULT_RANK
    form = TrainingForm(rank, job.lora_alpha or 2 * rank, job.lora_targets)
    loaded = load(replace(options, model=model), form, job.max_model_len, report)
    report("reads the saved state")
    store = TorchStore(folder)
    with contextlib.ExitStack() as opened:
        opened.callback(store.close)
        if reset:
            store.reset()
        policy = TorchPolicy(loaded, store, Path(model).name, job.weight_decay or 0.0)
        opened.pop_all()  # the policy closes it
    return policy
