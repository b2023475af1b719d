"""The progress of a real policy: baseline, looks beside training, a killed proxy, rewind."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from core.events import LookEnded
from core.runtime.home import running
from proxy.control.client import ControlClient
from tests.support.console import Clock, run_console
from tests.support.stack import Stack, rows_file, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def weights(stack: Stack, name: str) -> bytes:
    answer = httpx.get(f"{stack.engine_url}/ajetc/export", params={"name": name}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_looks_are_taken_beside_training_and_a_rewind_restores_the_weights(tmp_path: Path) -> None:
    probe_set = tmp_path / "probe.jsonl"
    rows = [
        {"prompt": f"What is {n} + {n + 8}?", "reference": str(2 * n + 8)} for n in range(11, 17)
    ]
    probe_set.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Stack(tmp_path / "home") as stack:
        stack.environment |= {
            "AJET_CONSOLE__PROBE__FILE": str(probe_set),
            "AJET_CONSOLE__PROBE__SHARE": "1.0",
        }
        stack.engine()
        stack.proxy()
        none = stack.run("progress", "--json")
        assert (none.returncode, json.loads(none.stdout)["outcome"]) == (3, "unknown")
        assert stack.run("engine", "start").returncode == 0
        baseline = until("the baseline", lambda: stack.progress().baseline)
        assert (baseline.step, baseline.checkpoint) == (1, "progress-1")
        assert len(stack.progress().before) == len(rows)
        before = weights(stack, "progress-1")
        dataset = rows_file(tmp_path / "rows.jsonl", 100)
        mock = stack.run("run", "mock", str(dataset), "--updates", "2")
        assert mock.returncode == 0, mock.stderr
        assert stack.run("progress", "look").returncode == 0
        step = stack.step()
        assert step >= 3

        def later() -> tuple[LookEnded, subprocess.CompletedProcess[str]] | None:
            """The look after the updates, and what is said of it: another may end in between."""
            current = stack.progress().current
            if current is None or current.verdict is None or (current.step or 0) < step:
                return None
            shown = stack.run("progress", "--json")
            same = json.loads(shown.stdout)["look"] == current.verdict.look
            return (current, shown) if same else None

        current, shown = until("a look after the updates", later)
        assert current.verdict is not None
        assert current.baseline_id == baseline.look_id
        assert all(one.answer for one in stack.progress().now), "likeliest answers for display"
        outcome = json.loads(shown.stdout)["outcome"]
        assert outcome == current.verdict.outcome
        assert shown.returncode == {"better": 0, "unknown": 3, "worse": 4}[outcome]
        until("the end of all episodes", lambda: not stack.claimed())

        stack.kill("proxy")
        stack.proxy()

        def step_is_known() -> bool:  # an open group may have ended in one more update
            return (stack.state().servers["embedded"].step or 0) >= step

        until("the step of the engine", step_is_known)
        assert stack.run("progress", "look").returncode == 0
        looks = current.verdict.look
        until(
            "a look of the new proxy",
            lambda: (result := stack.progress().current) and result.verdict.look > looks,  # type: ignore[union-attr]
        )
        resumed = stack.progress().current
        assert resumed is not None
        assert resumed.baseline_id == baseline.look_id

        best = stack.progress().best
        assert best is not None
        asyncio.run(rewind_by_key(stack))
        stack.rolling()
        until("the step of the best look", lambda: stack.step() == best.step)
        assert weights(stack, "latest") == weights(stack, best.checkpoint)
        if best.look_id == baseline.look_id:
            assert weights(stack, "latest") == before


async def rewind_by_key(stack: Stack) -> None:
    """Press `w` on Progress and confirm, in a console of this proxy; wait for its result."""
    info = running(stack.home, "proxy")
    assert info is not None
    async with (
        ControlClient(info.url, stack.home.token()) as link,
        run_console(link=link, clock=Clock(time.time()), size=(120, 40)) as console,
    ):
        await console.press("8")
        await console.until(lambda: "best verified" in console.text(), "the best verified step")
        await console.press("w")
        await console.until(lambda: "restored" in console.text(), "the question")
        await console.press("y")
        await console.until(lambda: "is back at" in console.text(), "the result")
