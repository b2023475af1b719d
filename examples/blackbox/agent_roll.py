"""Train: run every item of the dataset several times, epoch after epoch.

    python agent_roll.py

Environment: AJET_SWARM_URL, REMOTE_MODEL_PATH, REMOTE_ALLOCATE_GPU_PER_NODE, REMOTE_NNODES,
NUM_REPEAT, BATCH_SIZE, EPOCHS, MAX_PARALLEL,
EPISODE_TIMEOUT (seconds without a call after which the server takes an episode back), and UPDATES
to end after that many policy updates.
"""

import os
import signal
import sys
from dataclasses import replace
from statistics import mean

from get_training_dataset_item_list import get_training_dataset_item_list
from run_episode_once import run_episode_once

from ajet_swarm import (
    AgentJetJob,
    OpenaiBaseUrlAndApiKey,
    Result,
    Retry,
    SwarmClient,
    SwarmError,
    Task,
    TrainingFinished,
    WorkflowOutput,
    run_episodes,
)
from ajet_swarm.runs.episodes import rollout


def whole(name: str, usual: int, least: int = 1) -> int:
    """Return a whole number from the environment; exit with code 2 for any other value."""
    text = os.environ.get(name) or str(usual)
    if not text.strip().isdecimal() or int(text) < least:
        must = f"must be a whole number, {least} or more"
        sys.stderr.write(f"agent_roll: {name}={text!r} in the environment: {must}\n")
        sys.exit(2)
    return int(text)


SERVER = os.environ.get("AJET_SWARM_URL") or "http://localhost:10086"
MODEL = os.environ.get("REMOTE_MODEL_PATH") or "Qwen/Qwen2.5-7B-Instruct"
GPUS = whole("REMOTE_ALLOCATE_GPU_PER_NODE", 8)
NODES = whole("REMOTE_NNODES", 1)
NUM_REPEAT = whole("NUM_REPEAT", 4)
BATCH_SIZE = whole("BATCH_SIZE", 8)
EPOCHS = whole("EPOCHS", 20)
MAX_PARALLEL = whole("MAX_PARALLEL", 8)
EPISODE_TIMEOUT = whole("EPISODE_TIMEOUT", 240)
UPDATES = whole("UPDATES", 0, least=0)


def job() -> AgentJetJob:
    """Return the job that starts the server when it is OFFLINE."""
    return AgentJetJob(
        experiment_name="blackbox",
        model=MODEL,
        n_gpu=GPUS,
        nnodes=NODES,
        num_repeat=NUM_REPEAT,
        batch_size=BATCH_SIZE,
    )


def main() -> int:
    """Train until the epochs or the updates are done."""
    items = get_training_dataset_item_list()
    failed = 0
    with SwarmClient(SERVER) as client:
        client.auto_sync_train_config_and_start_engine(job())
        first = client.get_global_step()

        def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> WorkflowOutput:
            return run_episode_once(task, api.base_url, api.api_key)

        run = rollout(client, agent, discard_episode_timeout=EPISODE_TIMEOUT)
        for epoch in range(EPOCHS):
            # One batch at a time: the step and the mean reward are printed for each.
            for at in range(0, len(items), BATCH_SIZE):
                batch = items[at : at + BATCH_SIZE]
                # The same item in two epochs must become two groups.
                tasks = [replace(item, task_id=f"{item.task_id}@{epoch}") for item in batch]
                repeated = [task for task in tasks for _ in range(NUM_REPEAT)]
                results: list[Result[Task, float]] = run_episodes(
                    repeated, run, max_workers=MAX_PARALLEL, retry=Retry(tries=2)
                )
                failed = report(results, client.get_global_step(), failed)
                if UPDATES and client.get_global_step() - first >= UPDATES:
                    return 0
                if failed >= 3:
                    say("three batches without one reward: see the errors above")
                    return 1
    return 0


def report(results: list[Result[Task, float]], step: int, failed: int) -> int:
    """Print the result of a batch; return the number of batches in a row without rewards."""
    rewards = [result.value for result in results if result.value is not None]
    errors = [result.error for result in results if result.error is not None]
    # the next batch raises this one
    errors = [error for error in errors if not isinstance(error, TrainingFinished)]
    shown = f"{mean(rewards):.2f}" if rewards else "none"
    say(f"step {step}: mean reward {shown} of {len(rewards)} episodes")
    if errors:
        say(f"  {len(errors)} failed, the first: {errors[0]}")
    return 0 if rewards else failed + 1


def say(text: str) -> None:
    """Print one line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: releases all episodes
    try:
        sys.exit(main())
    except TrainingFinished as finished:
        say(str(finished))
    except SwarmError as error:
        sys.exit(f"agent_roll: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
