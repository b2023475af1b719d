"""The user's real way: the mock user starts an application, which asks the fake vLLM."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.state import Group
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

APP = Path(__file__).parents[1] / "support" / "small_app.py"
TARGET = f"""\
kind: command
name: small
command: ['{sys.executable}', '{APP}', '{{query}}']
then: ['{sys.executable}', '{APP}', '{{query}} (turn {{turn}})']
set: {{OPENAI_BASE_URL: '{{base_url}}'}}
answer: last_line
timeout: 60
"""


async def answer(episode: str, body: dict[str, Any], index: int) -> str:
    """The sum for candidates of an even id, one more for the others."""
    match = re.search(r"(\d) \+ 1", body["messages"][-1]["content"])
    return str(int(match[1]) + 1 + int(episode[0], 16) % 2) if match else "Hello."


def part(group: Group, name: str) -> list[float]:
    result = [next(p for p in candidate.parts if p.name == name) for candidate in group.candidates]
    return [float(str(one.value)) for one in result]


async def test_a_command_target_is_asked_and_its_reference_reaches_the_reward(
    tmp_path: Path,
) -> None:
    rows = tmp_path / "rows.jsonl"
    questions = [
        {"id": "a", "query": "What is 1 + 1", "answer": "2"},
        {"id": "b", "query": "What is 4 + 1", "answer": "5"},
        {
            "id": "c",
            "turns": [
                {"query": "What is 6 + 1", "answer": "7"},
                {"query": "What is 8 + 1", "answer": "9"},
            ],
        },
    ]
    rows.write_text("\n".join(json.dumps(row) for row in questions))
    target = tmp_path / "small.yaml"
    target.write_text(TARGET)
    model = tmp_path / "rewards.yaml"
    model.write_text("parts: {exact: {weight: 1}}\n")
    results = tmp_path / "results.jsonl"

    async with ScriptedSwarm(answer=answer) as swarm:
        with Stack(tmp_path / "home") as stack:
            flags = ("--swarm-url", swarm.url, "--rewards", str(model))
            await asyncio.to_thread(stack.proxy, *flags)
            dry = await asyncio.to_thread(
                stack.run, "run", "mock", "--target", str(target), "--dry"
            )
            assert dry.returncode == 0, dry.stderr
            assert "answered in" in dry.stderr
            assert ": Hello." in dry.stderr
            assert ", not trained on" in dry.stderr

            broken = tmp_path / "broken.yaml"
            broken.write_text(TARGET.replace("'{query}'", "--misbehave, fail, '{query}'", 1))
            bad = await asyncio.to_thread(
                stack.run, "run", "mock", str(rows), "--target", str(broken)
            )
            assert bad.returncode == 1
            assert "the dry row" in bad.stderr
            assert "ended with code 1: no such model" in bad.stderr
            assert "Traceback" not in bad.stderr
            assert not swarm.rewards

            flags = (str(rows), "--target", str(target), "--results", str(results))
            done = await asyncio.to_thread(stack.run, "run", "mock", *flags)
            assert done.returncode == 0, done.stderr
            assert "unmatched" not in done.stderr
            # A row is done once its rewards are decided; they are sent a moment later.
            await swarm.until(lambda: len(swarm.rewards) >= 16, 60)
            state = await asyncio.to_thread(stack.state)
    groups = {
        group.row_id: group for group in state.groups.values() if group.episode_type == "train"
    }
    references = {"a": "2", "b": "5", "c": "7", "c:t2": "9"}
    assert {row: group.reference for row, group in groups.items()} == references
    for group in groups.values():
        for candidate, value in zip(group.candidates, part(group, "exact"), strict=True):
            assert value == candidate.reward == float(candidate.text == group.reference)
    lines = {row["row_id"]: row for row in map(json.loads, results.read_text().split("\n")[:-1])}
    assert set(lines) == {"a", "b", "c"}
    for row_id, line in lines.items():
        last = groups[row_id if row_id != "c" else "c:t2"]
        assert line["group"] == last.group_id
        assert line["answer"] == last.candidates[last.returned or 0].text
        assert line["reward"] == last.candidates[last.returned or 0].reward
    assert len(swarm.rewards) == 16
    dries = [group for group in state.groups.values() if group.row_id.startswith("dry-")]
    assert [dry.episode_type for dry in dries] == ["eval"] * len(dries)
    assert len(dries) >= 2


def alive(pids: list[int]) -> bool:
    """Whether one of them still runs."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


@pytest.mark.parametrize("when", ["dry", "run"])
def test_a_stop_kills_the_processes_of_the_target(tmp_path: Path, when: str) -> None:
    note, target = tmp_path / "pids", tmp_path / "hangs.yaml"
    command = f"command: ['{sys.executable}', '{APP}', --misbehave, hang, '{{query}}']\n"
    more = f"set: {{SMALL_PID: '{note}'}}\n" + ("dry: no\n" if when == "run" else "")
    target.write_text(f"kind: command\n{command}{more}")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "hi"}\n')
    with Stack(tmp_path / "home") as stack:
        flags = ("--target", str(target), "--base-url", "http://127.0.0.1:9/v1")
        with (stack.home.logs / "mock.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "console", "run", "mock", str(rows), *flags],
                env=stack.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        stack.children["mock"] = child
        until("it hangs", lambda: note.exists() and len(note.read_text().split()) == 2, 90)
        pids = [int(pid) for pid in note.read_text().split()]
        assert alive(pids)
        stack.stop("mock")
        until("all is ended", lambda: not alive(pids), 60)
        assert "Traceback" not in stack.log("mock")
