"""Train: run every item of the dataset several times, epoch after epoch.

    python agent_roll.py

Environment: AJET_SWARM_URL, REMOTE_MODEL_PATH, NUM_REPEAT, BATCH_SIZE, EPOCHS, MAX_PARALLEL,
EPISODE_TIMEOUT (seconds without a call after which the server takes an episode back), and UPDATES
to end after so many policy updates.
"""

import os
import signal
import sys
from dataclasses import replace
from statistics import mean

from get_training_dataset_item_list import get_training_dataset_item_list
from run_episode_once import run_episode_once

from swarm import (
    AgentJetJob,
    OpenaiBaseUrlAndApiKey,
    Result,
    Retry,
    SwarmClient,
    SwarmError,
    Task,
    WorkflowOutput,
    run_episodes,
)
from swarm.run import rollout

SERVER = os.environ.get("AJET_SWARM_URL") or "http://localhost:10086"
MODEL = os.environ.get("REMOTE_MODEL_PATH") or "Qwen/Qwen2.5-7B-Instruct"
NUM_REPEAT = int(os.environ.get("NUM_REPEAT") or 4)
BATCH_SIZE = int(os.environ.get("BATCH_SIZE") or 8)
EPOCHS = int(os.environ.get("EPOCHS") or 20)
MAX_PARALLEL = int(os.environ.get("MAX_PARALLEL") or 8)
EPISODE_TIMEOUT = float(os.environ.get("EPISODE_TIMEOUT") or 240)
UPDATES = int(os.environ.get("UPDATES") or 0)


def job() -> AgentJetJob:
    """What the server is started with when it is OFFLINE."""
    return AgentJetJob(
        experiment_name="blackbox", model=MODEL, num_repeat=NUM_REPEAT, batch_size=BATCH_SIZE
    )


def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> WorkflowOutput:
    """One episode, for the executor."""
    return run_episode_once(task, api.base_url, api.api_key)


def main() -> int:
    """Train until the epochs or the updates are done."""
    items = get_training_dataset_item_list()
    failed = 0
    with SwarmClient(SERVER) as client:
        client.auto_sync_train_config_and_start_engine(job())
        first = client.get_global_step()
        run = rollout(client, agent, discard_episode_timeout=EPISODE_TIMEOUT)
        for epoch in range(EPOCHS):
            # A batch at a time: the step and the mean reward are told for each.
            for at in range(0, len(items), BATCH_SIZE):
                batch = items[at : at + BATCH_SIZE]
                # Two epochs of an item are two groups.
                tasks = [replace(one, task_id=f"{one.task_id}@{epoch}") for one in batch]
                repeated = [one for one in tasks for _ in range(NUM_REPEAT)]
                results: list[Result[Task, float]] = run_episodes(
                    repeated, run, max_workers=MAX_PARALLEL, retry=Retry(tries=2)
                )
                failed = told(results, client.get_global_step(), failed)
                if UPDATES and client.get_global_step() - first >= UPDATES:
                    return 0
                if failed >= 3:
                    say("three batches without one reward: see the errors above")
                    return 1
    return 0


def told(results: list[Result[Task, float]], step: int, failed: int) -> int:
    """Say how a batch went; batches in a row without any reward."""
    rewards = [one.value for one in results if one.value is not None]
    errors = [one.error for one in results if one.error is not None]
    shown = f"{mean(rewards):.2f}" if rewards else "none"
    say(f"step {step}: mean reward {shown} of {len(rewards)} episodes")
    if errors:
        say(f"  {len(errors)} failed, the first: {errors[0]}")
    return 0 if rewards else failed + 1


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: all is given back
    try:
        sys.exit(main())
    except SwarmError as error:
        sys.exit(f"agent_roll: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
