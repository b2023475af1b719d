"""The jobs that come with the program for the embedded engine."""

from typing import Final

from ajet_swarm.protocol.job import BATCH, GPUS, Job, default_job, hand_job, put
from ajet_swarm.protocol.server_job import server_hand_job, server_job
from core.settings import EngineSettings

PRESETS: Final = ("default", "hand")
"""Names of the jobs."""
_TASKS: Final = 4
"""Tasks of a step of the default job, as of the small policies."""


def embedded_job(engine: EngineSettings, preset: str) -> Job:
    """Return a job for the embedded engine.

    That of the torch backend also starts an AgentJet server: it leaves the learning rate and the
    like to the engine.

    Args:
        engine: Its settings: backend and model.
        preset: `default`, or `hand` for rating by hand.
    """
    by_hand = preset == "hand"
    if engine.backend != "torch":
        return hand_job(engine.model) if by_hand else default_job(engine.model)
    one_gpu: Job = {}
    put(one_gpu, GPUS, 1)
    if by_hand:
        return server_hand_job(engine.torch_model, like=one_gpu)
    job = server_job(engine.torch_model, like=one_gpu)
    put(job, BATCH, _TASKS)
    return job
