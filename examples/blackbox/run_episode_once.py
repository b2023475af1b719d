"""One episode: run the agent on an item, and compute the reward of its answer.

    python run_episode_once.py --item '{"main_query": "3 + 4", "metadata": {"answer": "7"}}' \\
        --base-url http://127.0.0.1:8000/v1 --api-key KEY

runs it alone, with any OpenAI endpoint and without a swarm server, and prints answer and reward.
`--item` is a JSON object, or an id or a place (0 is the first) in the dataset. `agent_roll.py`
calls the function `run_episode_once`.

The agent is a program that contains nothing about training. It gets the item's text on standard
input and an OpenAI endpoint in its environment, and prints its answer. To train your own, change
`AGENT` and `compute_reward`.

Environment: OPENAI_BASE_URL and OPENAI_API_KEY where the flags are left out; REWARD_MODE `function`
(the default) or `judge`; JUDGE_BASE_URL, JUDGE_MODEL and JUDGE_API_KEY for the latter.
"""

import argparse
import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from ajet_swarm import Task, WorkflowOutput
from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.data.readers import NOT_DEFINED, task_of
from ajet_swarm.debug.agent import choose

AGENT = [sys.executable, str(Path(__file__).resolve().parent / "agent.py")]
AGENT_SECONDS = 120.0
"""An agent that runs longer is killed, and its episode is released."""
RUNNING: set["subprocess.Popen[str]"] = set()
"""Agents that have not ended yet."""
STARTING = threading.Lock()
"""Held while an agent starts, until `RUNNING` has it."""
ENDING = threading.Event()
"""Set when the script exits: no agent starts from then on."""
REWARD_MODE = os.environ.get("REWARD_MODE", "function")


def run_episode_once(item: Task, base_url: str, api_key: str) -> WorkflowOutput:
    """Run the agent on one item.

    Raises:
        RuntimeError: the agent or the judge failed, so there is no reward.
    """
    answer = run_agent(query_of(item), base_url, api_key)
    reward = compute_reward(item, answer)
    return WorkflowOutput(
        reward=reward, is_success=reward >= 0.99, metadata={"answer": answer[:500]}
    )


def query_of(item: Task) -> str:
    """Return the prompt for the agent.

    Raises:
        RuntimeError: the row has it in another field.
    """
    query = item.metadata.get("question") or item.metadata.get("query") or item.main_query
    if query == NOT_DEFINED:
        raise RuntimeError(f"item {item.task_id} has no `query` or `question`: name its field here")
    return str(query)


def run_agent(query: str, base_url: str, api_key: str) -> str:
    """Run the agent and return what it prints."""
    with STARTING:
        if ENDING.is_set():
            raise RuntimeError("the script exits")
        agent = subprocess.Popen(
            AGENT,
            env={**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # programs that it starts are killed with it
        )
        RUNNING.add(agent)
    try:
        out, err = agent.communicate(query, timeout=AGENT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the agent was still running after {AGENT_SECONDS:g} s") from None
    finally:
        kill(agent)
        with agent:  # waits, and closes the pipes
            RUNNING.discard(agent)
    if agent.returncode:
        raise RuntimeError(f"the agent ended with {agent.returncode}:\n{err[-2000:]}")
    return out.strip()


def kill(agent: "subprocess.Popen[str]") -> None:
    """Kill an agent and the programs it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(agent.pid, signal.SIGKILL)


@atexit.register
def end_agents() -> None:
    """Kill every agent: Ctrl-C does not reach them, as each has a session of its own."""
    with STARTING:
        ENDING.set()
        for agent in tuple(RUNNING):
            kill(agent)


def compute_reward(item: Task, answer: str) -> float:
    """Return the reward from 0 to 1: the last number is correct, or the judge's score."""
    reference = str(item.metadata.get("answer", ""))
    if REWARD_MODE == "judge":
        return judge(query_of(item), reference, answer)
    numbers = re.findall(r"-?\d+(?:\.\d+)?", answer.replace(",", ""))
    wanted = re.findall(r"-?\d+(?:\.\d+)?", reference.replace(",", ""))
    if not wanted:
        raise RuntimeError(f"item {item.task_id} has no number in its `answer`")
    return float(bool(numbers) and float(numbers[-1]) == float(wanted[-1]))


def judge(question: str, reference: str, answer: str) -> float:
    """Return the score that the judge model gives the answer, 0 to 1."""
    text = (
        f"Question: {question}\nReference answer: {reference or 'none'}\nAnswer: {answer}\n\n"
        "How good is the answer, from 0 to 10? Reply with the number alone."
    )
    asked = [{"role": "user", "content": text}]
    body = {"model": os.environ["JUDGE_MODEL"], "temperature": 0, "messages": asked}
    key = os.environ.get("JUDGE_API_KEY", "none")
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    url = os.environ["JUDGE_BASE_URL"].rstrip("/") + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=120) as reply:
        reply_text = str(json.load(reply)["choices"][0]["message"]["content"])
    number = re.search(r"\d+(?:\.\d+)?", reply_text)
    if number is None or float(number[0]) > 10:
        raise RuntimeError(f"the judge gave no number from 0 to 10: {reply_text[:200]!r}")
    return float(number[0]) / 10


def main() -> int:
    """Run one episode; the exit code is 1 without a reward and 2 for wrong use."""
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="run_episode_once.py", allow_abbrev=False)
    add, url, key = parser.add_argument, env("OPENAI_BASE_URL", ""), env("OPENAI_API_KEY")
    add("--item", required=True, help="a JSON object, or an id or a place in the dataset")
    add("--base-url", default=url, metavar="URL", help="OpenAI endpoint (else OPENAI_BASE_URL)")
    add("--api-key", default=key or "none", metavar="KEY", help="its key (else OPENAI_API_KEY)")
    args = parser.parse_args()
    if not args.base_url:
        parser.error("give --base-url URL, or set OPENAI_BASE_URL")
    try:
        item = item_of(args.item)
    except AjetError as error:
        parser.error(str(error))
    try:
        output = run_episode_once(item, args.base_url, args.api_key)
    except (RuntimeError, OSError) as error:
        sys.stderr.write(f"run_episode_once.py: no reward: {error}\n")
        return 1
    sys.stdout.write(
        f"answer {json.dumps(output.metadata.get('answer'))}\nreward {output.reward}\n"
    )
    return 0


def item_of(text: str) -> Task:
    """Return the item of `--item`.

    Raises:
        AjetError: it is not a JSON object, has no query, or is not in the dataset.
    """
    if not text.lstrip().startswith("{"):
        from get_training_dataset_item_list import get_training_dataset_item_list

        return choose(get_training_dataset_item_list(), text)
    try:
        row = json.loads(text)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}", "--item") from None
    if "main_query" not in row:  # a row as a dataset has it
        query = row.get("question") or row.get("query")
        if not query:
            raise UsageError("has none of `main_query`, `question` and `query`", "--item")
        row = {**row, "main_query": query}
    return task_of({"task_id": "item", "metadata": row, **row}, "--item")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
