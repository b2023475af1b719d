"""Training script in the tutorials' other form: collect a batch, run it completely, continue.

python -m examples.swarm_script.train_batches --steps 3
"""

import os
import sys

from ajet_swarm.compat import (
    AgentJetJob,
    AjetTaskReader,
    RouterTaskReader,
    SwarmClient,
    Task,
    TrainingFinished,
    run_episodes_until_all_complete,
)
from examples.swarm_script.agent import execute_agent, run_script

LOCAL_GRPO_N = 4
REMOTE_BATCH_SIZE = 2
AJET_SWARM_URL = os.getenv("AJET_SWARM_URL", "http://localhost:10086")
REMOTE_MODEL_PATH = os.getenv("REMOTE_MODEL_PATH")  # else the default of AgentJetJob


def main(steps: int) -> list[float]:
    """Run `steps` batches; return the mean reward of each."""
    dataset = RouterTaskReader(reader_type="random_dummy", reader_config=AjetTaskReader())
    job = AgentJetJob(
        experiment_name="swarm_script_batches",
        model=REMOTE_MODEL_PATH,
        batch_size=REMOTE_BATCH_SIZE,
        num_repeat=LOCAL_GRPO_N,
    )
    means: list[float] = []
    with SwarmClient(AJET_SWARM_URL) as swarm_worker:
        swarm_worker.auto_sync_train_config_and_start_engine(job)

        def rollout(task: Task) -> float:
            episode_uuid, api_baseurl_key = swarm_worker.begin_episode()
            question = f"What is {task.metadata['random_number']} + 1?"
            workflow_output = execute_agent(
                Task(task_id=task.task_id, main_query=question), api_baseurl_key
            )
            swarm_worker.end_episode(task, episode_uuid, workflow_output)
            assert isinstance(workflow_output.reward, float)
            return workflow_output.reward

        next_batch: list[Task] = []
        for task in dataset.generate_training_tasks():
            next_batch += [task] * LOCAL_GRPO_N
            if len(next_batch) < REMOTE_BATCH_SIZE * LOCAL_GRPO_N:
                continue
            try:
                rewards = run_episodes_until_all_complete(next_batch, func=rollout, auto_retry=True)
            except TrainingFinished as finished:
                sys.stdout.write(f"{finished}\n")
                break
            numbers = [reward for reward in rewards if isinstance(reward, float)]
            means.append(sum(numbers) / len(numbers))
            next_batch.clear()
            if len(means) >= steps:
                break
    return means


if __name__ == "__main__":
    run_script(main, 3)
