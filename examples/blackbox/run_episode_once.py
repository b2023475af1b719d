"""One episode: run the agent on an item, and say what its answer is worth.

The agent is a program that knows nothing of training. It gets the item's text on its standard input
and an OpenAI endpoint in its environment; what it prints is its answer. To train your own, change
`AGENT` and `compute_reward`.

Environment: REWARD_MODE `function` (the default) or `judge`; JUDGE_BASE_URL, JUDGE_MODEL and
JUDGE_API_KEY for the latter.
"""

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from swarm import Task, WorkflowOutput

AGENT = [sys.executable, str(Path(__file__).resolve().parent / "agent.py")]
AGENT_SECONDS = 120.0
"""An agent that runs longer is ended, and the episode given back."""
RUNNING: set["subprocess.Popen[str]"] = set()
"""Agents that have not ended yet."""
REWARD_MODE = os.environ.get("REWARD_MODE", "function")


def run_episode_once(item: Task, base_url: str, api_key: str) -> WorkflowOutput:
    """Run the agent on one item.

    Raises:
        RuntimeError: the agent or the judge failed: there is no reward, and none is made up.
    """
    answer = run_agent(query_of(item), base_url, api_key)
    reward = compute_reward(item, answer)
    return WorkflowOutput(
        reward=reward, is_success=reward >= 0.99, metadata={"answer": answer[:500]}
    )


def query_of(item: Task) -> str:
    """What the agent is asked."""
    row = item.metadata
    return str(row.get("question") or row.get("query") or item.main_query)


def run_agent(query: str, base_url: str, api_key: str) -> str:
    """What the agent prints."""
    agent = subprocess.Popen(
        AGENT,
        env={**os.environ, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it may start programs of its own, which end with it
    )
    RUNNING.add(agent)
    try:
        out, err = agent.communicate(query, timeout=AGENT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"the agent was still running after {AGENT_SECONDS:g} s") from None
    finally:
        kill(agent)
        agent.wait()
        RUNNING.discard(agent)
        for pipe in (agent.stdin, agent.stdout, agent.stderr):
            if pipe is not None:
                pipe.close()
    if agent.returncode:
        raise RuntimeError(f"the agent ended with {agent.returncode}:\n{err[-2000:]}")
    return out.strip()


def kill(agent: "subprocess.Popen[str]") -> None:
    """End an agent and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(agent.pid, signal.SIGKILL)


@atexit.register
def end_agents() -> None:
    """Ctrl-C reaches none of them, being in sessions of their own."""
    for agent in tuple(RUNNING):
        kill(agent)


def compute_reward(item: Task, answer: str) -> float:
    """0 to 1: the answer's last number is the right one, or what a judge says."""
    reference = str(item.metadata.get("answer", ""))
    if REWARD_MODE == "judge":
        return judge(query_of(item), reference, answer)
    found = re.findall(r"-?\d+(?:\.\d+)?", answer.replace(",", ""))
    wanted = re.findall(r"-?\d+(?:\.\d+)?", reference.replace(",", ""))
    if not wanted:
        raise RuntimeError(f"item {item.task_id} has no number in its `answer`")
    return float(bool(found) and float(found[-1]) == float(wanted[-1]))


def judge(question: str, reference: str, answer: str) -> float:
    """What a model says of the answer, 0 to 1."""
    text = (
        f"Question: {question}\nReference answer: {reference or 'none'}\nAnswer: {answer}\n\n"
        "How good is the answer, from 0 to 10? Reply with the number alone."
    )
    body = {
        "model": os.environ["JUDGE_MODEL"],
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
    }
    head = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('JUDGE_API_KEY', 'none')}",
    }
    url = os.environ["JUDGE_BASE_URL"].rstrip("/") + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=120) as reply:
        said = str(json.load(reply)["choices"][0]["message"]["content"])
    number = re.search(r"\d+(?:\.\d+)?", said)
    if number is None or float(number[0]) > 10:
        raise RuntimeError(f"the judge gave no number from 0 to 10: {said[:200]!r}")
    return float(number[0]) / 10
