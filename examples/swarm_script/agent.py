"""Agent of both scripts: one question, one answer, a reward for enthusiasm."""

import argparse
import signal
import sys
from collections.abc import Callable

import httpx

from ajet_swarm import SwarmError
from ajet_swarm.compat import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

MARKS = 3
"""Number of exclamation marks for the whole reward."""


def execute_agent(task: Task, api_baseurl_key: OpenaiBaseUrlAndApiKey) -> WorkflowOutput:
    """Ask the policy the task's question; any OpenAI client works."""
    body = {"model": "any", "messages": [{"role": "user", "content": task.main_query}]}
    url, key = f"{api_baseurl_key.base_url}/chat/completions", api_baseurl_key.api_key
    answer = httpx.post(url, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=60)
    answer.raise_for_status()
    text = answer.json()["choices"][0]["message"]["content"] or ""
    reward = min(1.0, text.count(task.metadata.get("mark", "!")) / MARKS)
    return WorkflowOutput(
        reward=reward, metadata={"answer": text}, log_metrics={"length": float(len(text))}
    )


def run_script(main: Callable[[int], list[float]], steps: int) -> None:
    """Run the command line of a script: `--steps`, the mean rewards, and why it ended early."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: gives all back
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=steps, help="policy updates or batches")
    try:
        rewards = main(parser.parse_args().steps)
    except SwarmError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    shown = " ".join(f"{reward:.2f}" for reward in rewards)
    sys.stdout.write(f"mean reward of each batch: {shown}\n")
