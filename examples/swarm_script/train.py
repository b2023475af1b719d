"""Training script in the form of AgentJet's swarm tutorials: a dataset, a rollout, a pool.

python -m examples.swarm_script.train --steps 5
"""

import os
import sys

from ajet_swarm.compat import (
    AgentJetJob,
    AjetTaskReader,
    JsonlDatasetFile,
    JsonlTrainingFp,
    PeriodicDrainThreadPoolExecutor,
    RouterTaskReader,
    SwarmClient,
    Task,
    TrainingFinished,
)
from examples.swarm_script.agent import execute_agent, run_script

# --- what counts here ---
LOCAL_GRPO_N = 4
LOCAL_NUM_EPOCH = 10_000
LOCAL_DATASET_PATH = os.path.join(os.path.dirname(__file__), "tasks.jsonl")

# --- what counts on the server ---
AJET_SWARM_URL = os.getenv("AJET_SWARM_URL", "http://localhost:10086")
REMOTE_MODEL_PATH = os.getenv("REMOTE_MODEL_PATH")  # else the default of AgentJetJob
REMOTE_BATCH_SIZE = 4


def main(steps: int) -> list[float]:
    """Train until `steps` updates are done; return the mean reward of each drained batch."""
    dataset = RouterTaskReader(
        reader_type="jsonl_dataset_file",
        reader_config=AjetTaskReader(
            jsonl_dataset_file=JsonlDatasetFile(
                training=JsonlTrainingFp(file_path=LOCAL_DATASET_PATH)
            )
        ),
    )

    swarm_worker = SwarmClient(AJET_SWARM_URL)
    swarm_worker.auto_sync_train_config_and_start_engine(
        AgentJetJob(
            experiment_name="swarm_script",
            algorithm="grpo",
            n_gpu=1,
            model=REMOTE_MODEL_PATH,
            batch_size=REMOTE_BATCH_SIZE,
            num_repeat=LOCAL_GRPO_N,
        )
    )
    first = swarm_worker.get_global_step()

    def rollout(task: Task) -> float:
        episode_uuid, api_baseurl_key = swarm_worker.begin_episode(discard_episode_timeout=120)
        workflow_output = execute_agent(task, api_baseurl_key)
        swarm_worker.end_episode(task, episode_uuid, workflow_output)
        assert isinstance(workflow_output.reward, float)
        return workflow_output.reward

    means: list[float] = []
    executor = PeriodicDrainThreadPoolExecutor(
        workers=LOCAL_GRPO_N * REMOTE_BATCH_SIZE, auto_retry=True
    )
    try:
        for _ in range(LOCAL_NUM_EPOCH):
            for task in dataset.generate_training_tasks():
                for _ in range(LOCAL_GRPO_N):
                    _, drained = executor.submit_with_periodic_drain(fn=rollout, task=task)
                    if drained:
                        means.append(sum(drained) / len(drained))
                        swarm_worker.print_rollout_stat()
                if swarm_worker.get_global_step() >= first + steps:
                    executor.shutdown()
                    return means
        return means
    except TrainingFinished as finished:
        sys.stdout.write(f"{finished}\n")
        return means
    finally:  # also on Ctrl-C: nothing is tried again, all is given back
        executor.shutdown(wait=False, cancel_futures=True)
        swarm_worker.close()


if __name__ == "__main__":
    run_script(main, 5)
