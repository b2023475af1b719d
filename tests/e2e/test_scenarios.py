"""The swarm scenarios run in their small form, train, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ajet_swarm import SwarmClient
from tests.support import forked
from tests.support.stack import Stack, until

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def run(name: str, tmp: Path, *args: str) -> str:
    """The output of an example that ends with status 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp)}
    done = forked.run(args, env=environment, timeout=200, module=f"examples.{name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp.iterdir())  # its home is gone
    return done.stdout


def test_a_killed_client_loses_no_step_and_no_sample(tmp_path: Path) -> None:
    out = run("distributed", tmp_path, "--updates", "4")
    killed = re.search(r"step (\d): bob is killed, [1-9]\d* episodes still in its name", out)
    assert killed
    assert re.search(r"steps 4, none lost; samples \d+, each once; claims left 0", out)
    rows = re.findall(r"^\| (\d) \| (.*?) \| \d+ \|", out, re.M)
    assert len(rows) == 4
    assert all("bob" not in who for step, who in rows if step > killed[1])
    assert "joe" in rows[3][1]


def test_two_models_are_trained_by_the_same_episodes(tmp_path: Path) -> None:
    out = run("multi_model", tmp_path, "--updates", "1")
    rows = re.findall(r"^\| (planner|executor) \| (\d+) \| .* \| (\d+) \|$", out, re.M)
    assert [name for name, *_ in rows] == ["planner", "executor"]
    assert all(int(updates) >= 1 for _, updates, _ in rows)
    assert rows[0][2] == rows[1][2]  # as many samples here as there
    assert "claims left 0 on both" in out


def test_a_student_is_taught(tmp_path: Path) -> None:
    out = run("multi_model.teacher_student", tmp_path, "--updates", "1")
    assert re.search(r"student step 2: agrees \d\.\d\d; the teacher is right in \d\.\d\d", out)
    assert "the student is trained; the teacher is fixed: it answers eval episodes alone" in out
    assert re.search(r"^teacher step (\d+) at the start, \1 at the end$", out, re.M)


def test_ctrl_c_leaves_nothing_claimed_on_a_server_that_was_named(tmp_path: Path) -> None:
    """Its idle limit is 240 s: an episode that is not given back delays the batch that long."""
    with Stack(tmp_path / "home") as stack, SwarmClient(url := stack.engine().url) as client:

        def holders() -> set[str]:
            return {one.client_uuid for one in client.get_episode_buffer() if one.claimed}

        for name, clients in {"distributed": 0, "cocktail": 3, "swarm_script.train": 1}.items():
            with subprocess.Popen(
                [sys.executable, "-m", f"examples.{name}"],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONUNBUFFERED": "1",
                    "AJET_SWARM_URL": url,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as example:
                assert example.stdout is not None
                if clients:
                    until(f"{name} holds episodes", lambda n=clients: len(holders()) >= n)
                else:  # its dead client's as well
                    assert any("is killed" in one for one in example.stdout), name
                example.send_signal(signal.SIGINT)
                _, err = example.communicate(timeout=90)
            assert example.returncode == 130, err
            assert "Traceback" not in err, err
            left = [one for one in client.get_episode_buffer() if one.claimed]
            assert not left, (name, [(one.client_uuid, one) for one in left], err)
