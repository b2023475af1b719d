"""The progress of a real policy: baseline, looks beside training, a killed proxy, rewind."""

import json
from pathlib import Path

import httpx
import pytest

from core.state import Progress
from tests.support.stack import Stack, rows_file, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def progress(stack: Stack) -> Progress:
    return stack.state().progress.get("embedded") or Progress()


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
            "AJET_CONSOLE__PROBE__ENABLED": "true",
            "AJET_CONSOLE__PROBE__FILE": str(probe_set),
            "AJET_CONSOLE__PROBE__SHARE": "1.0",
        }
        stack.engine()
        stack.proxy()
        none = stack.run("progress", "--json")
        assert (none.returncode, json.loads(none.stdout)["outcome"]) == (3, "unknown")
        assert stack.run("engine-start").returncode == 0
        baseline = until("the baseline", lambda: progress(stack).baseline)
        assert (baseline.step, baseline.checkpoint) == (1, "progress-1")
        assert len(progress(stack).before) == len(rows)
        before = weights(stack, "progress-1")
        dataset = rows_file(tmp_path / "rows.jsonl", 100)
        mock = stack.run("mock", str(dataset), "--updates", "2")
        assert mock.returncode == 0, mock.stderr
        assert stack.run("progress-look").returncode == 0
        step = stack.step()
        assert step >= 3

        def later() -> bool:
            current = progress(stack).current
            return current is not None and (current.step or 0) >= step

        until("a look after the updates", later)
        current = progress(stack).current
        assert current is not None
        assert current.verdict is not None
        assert current.baseline_id == baseline.look_id
        assert all(one.answer for one in progress(stack).now), "likeliest answers for display"
        shown = stack.run("progress", "--json")
        outcome = json.loads(shown.stdout)["outcome"]
        assert outcome == current.verdict.outcome
        assert shown.returncode == {"better": 0, "unknown": 3, "worse": 4}[outcome]
        assert not stack.claimed()

        stack.kill("proxy")
        stack.proxy()
        until("the engine is seen", lambda: stack.state().servers["embedded"].step == step)
        assert stack.run("progress-look").returncode == 0
        looks = current.verdict.look
        until(
            "a look of the new proxy",
            lambda: (result := progress(stack).current) and result.verdict.look > looks,  # type: ignore[union-attr]
        )
        resumed = progress(stack).current
        assert resumed is not None
        assert resumed.baseline_id == baseline.look_id

        best = progress(stack).best
        assert best is not None
        done = stack.run("progress-rewind", "--yes")
        assert done.returncode == 0, done.stderr
        stack.rolling()
        assert stack.step() == best.step
        if best.look_id == baseline.look_id:
            assert weights(stack, "latest") == before
        else:
            assert weights(stack, "latest") == weights(stack, best.checkpoint)
