"""Checkpoints and tokens by command, on a real engine."""

from pathlib import Path

import openai
import pytest

from tests.support.stack import loop_up, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def test_a_checkpoint_is_saved_and_restored(tmp_path: Path) -> None:
    with loop_up(tmp_path / "home") as stack:
        assert "saved start at step 0" in stack.run("checkpoints", "save", "start").stdout
        with openai.OpenAI(base_url=stack.base_url, api_key="x", max_retries=0) as client:
            for number in range(4):
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": f"What is {number} + 1?"}]
                )
        until("an update", lambda: stack.step() >= 2)
        group = next(iter(stack.state().groups.values()))
        shown = stack.run("engine", "tokens", group.candidates[0].episode_uuid)
        assert shown.returncode == 0, shown.stderr
        assert f"{group.candidates[0].reward:.3f}" in shown.stdout
        refused = stack.run("checkpoints", "restore", "start", "--yes")
        assert refused.returncode == 1
        assert "not offline" in refused.stderr
        assert stack.run("engine", "stop", "--yes").returncode == 0
        done = stack.run("checkpoints", "restore", "start", "--yes")
        assert done.returncode == 0, done.stderr
        file = tmp_path / "start.safetensors"
        assert stack.run("checkpoints", "export", "start", str(file)).returncode == 0
        assert file.stat().st_size > 3_000_000
        assert stack.run("engine", "start").returncode == 0
        stack.rolling()
        assert stack.step() == 1
        assert "start" in stack.run("checkpoints").stdout
