"""Math with a calculator, as its page describes it, in the short form."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def test_it_trains_with_a_tool_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.math", "--tool", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--updates", "1", "--held-out", "8"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        r"^update +\d+  mean reward +\d\.\d\d .*right calls \d\.\d\d$", done.stdout, re.M
    )
    right = re.search(r"^\| right answers \| 0\.00 \| (\d\.\d\d) \|", done.stdout, re.M)
    assert right is not None
    assert float(right[1]) > 0  # a call and its result came through; without a tool none is right
    assert done.stdout.endswith("claims left 0\n")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
