"""A wrong address, and a server whose engine is off: each example reports it and ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ajet_swarm import SwarmClient
from examples.stage import Stage
from examples.swarming import left_claimed

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "http://127.0.0.1:9"

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(300)]


def clients(folder: Path, url: str) -> dict[str, list[str]]:
    """The client processes that start no engine."""
    mix, diary = folder / "mix.json", str(folder / "diary.jsonl")
    mix.write_text('{"maths": 1.0}')
    more = ["--swarm-url", url, "--diary", diary]
    kind = ["--kind", "maths", "--mix", str(mix)]
    return {
        "distributed client": ["-m", "examples.distributed.client", *more],
        "cocktail client": ["-m", "examples.cocktail.client", *more, *kind],
    }


def all_say(commands: Mapping[str, Sequence[str]], url: str, words: str) -> None:
    """All of them, side by side: each ends with an error that has the words, and no traceback."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AJET_SWARM_URL": url}
    begun = {
        name: subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT / "examples/blackbox" if name == "blackbox" else ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, command in commands.items()
    }
    try:
        for name, child in begun.items():
            value, _ = child.communicate(timeout=200)
            assert child.returncode == 1, (name, value)
            assert re.search(words, value.splitlines()[-1]), (name, value)
            assert "Traceback" not in value, (name, value)
    finally:
        for child in begun.values():
            child.kill()
            child.wait()


def test_a_wrong_address_is_reported(tmp_path: Path) -> None:
    commands = {
        **clients(tmp_path, NOBODY),
        "distributed": ["-m", "examples.distributed"],
        "cocktail": ["-m", "examples.cocktail"],
        "multi_model": ["-m", "examples.multi_model", "--planner", NOBODY, "--executor", NOBODY],
        "teacher_student": [
            *("-m", "examples.multi_model.teacher_student"),
            *("--teacher", NOBODY, "--student", NOBODY),
        ],
        "blackbox": ["agent_roll.py"],
        "swarm_script": ["-m", "examples.swarm_script.train"],
        "swarm_script_batches": ["-m", "examples.swarm_script.train_batches"],
    }
    all_say(commands, NOBODY, r"no connection|did not come in|no swarm server answered")


def test_an_engine_that_stays_off_is_reported(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path / "stage") as stage:
        url = stage.serve("engine")
        all_say(clients(tmp_path, url), url, "OFFLINE for 60 s")
        with SwarmClient(url) as client:
            assert not left_claimed(client)
    signal.signal(signal.SIGTERM, before)
