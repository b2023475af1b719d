"""When `.ci/run` accepts a run in which tests failed, and how `make test` is repeated."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from tests.support import again

SCRIPT = Path(__file__).parents[2] / ".ci" / "repeat.py"


@pytest.mark.parametrize(
    ("failed", "passed_again", "status", "tests", "types", "expected", "last"),
    [
        ("", "", 0, "0", "0", 0, "== 1 passed =="),
        ("abc", "abc", 1, "2", "0", 0, "== 3 flaky, 1 passed =="),
        ("abcd", "abcd", 1, "2", "0", 1, "== 4 flaky, 1 passed =="),
        ("ab", "a", 1, "2", "0", 1, "== 1 failed, 1 flaky, 1 passed =="),
        ("a", None, 1, "2", "2", 1, "== 1 failed, 1 passed =="),
        ("a", None, 2, "2", "0", 1, "== 1 failed, 1 passed, 1 error =="),
        ("", None, 0, "2", "0", 1, "== 1 passed, 1 error =="),
        ("a", None, None, "2", "0", 1, "== 1 error =="),
    ],
)
def test_which_failures_are_accepted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failed: str,
    passed_again: str | None,
    status: int | None,
    tests: str,
    types: str,
    expected: int,
    last: str,
) -> None:
    spec = importlib.util.spec_from_file_location("repeat", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    repeat = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(repeat)

    def second_run(names: set[str], folder: Path) -> set[str]:
        assert passed_again is not None, "there is a second run"
        assert names == set(failed)
        return set(passed_again)

    repeat.passed_alone = second_run
    report = {"status": status, "passed": ["x"], "failed": list(failed)}
    text = json.dumps(report) if status is not None else ""
    (tmp_path / "1.json").write_text(text)
    assert repeat.main(str(tmp_path), tests, types) == expected
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    flaky = [line.removeprefix("FLAKY ") for line in lines if line.startswith("FLAKY")]
    assert "".join(flaky) == (passed_again or "")


MAKEFILE = """.venv/.ready:
test:
\t@echo '{"passed": ["x", "y"], "failed": ["z"]}' > $(lastword $(PYTEST))/1.json; exit 1
"""


def test_runs_of_the_same_commit_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, results = tmp_path / "root", tmp_path / "results.jsonl"
    root.mkdir()
    (root / "Makefile").write_text(MAKEFILE)
    for command in ("init", "add Makefile", "-c user.name=a -c user.email=a commit -qm m"):
        subprocess.run(["git", "-C", root, *command.split()], check=True, capture_output=True)
    monkeypatch.setattr(again, "ROOT", root)
    for runs in (1, 3):
        assert again.main([str(runs), "--results", str(results), "--busy", "0"]) == 1
        stored = again.stored(results)
        assert [(run["passed"], run["failed"]) for run in stored] == [(2, ["z"])] * runs
    assert len({run["commit"] for run in stored}) == 1
