"""When `.ci/run` accepts a run in which tests failed."""

import importlib.util
import json
from pathlib import Path

import pytest

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

    def again(names: set[str], folder: Path) -> set[str]:
        assert passed_again is not None, "there is a second run"
        assert names == set(failed)
        return set(passed_again)

    repeat.passed_alone = again
    report = {"status": status, "passed": ["x"], "failed": list(failed)}
    text = json.dumps(report) if status is not None else ""
    (tmp_path / "1.json").write_text(text)
    assert repeat.main(str(tmp_path), tests, types) == expected
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    flaky = [line.removeprefix("FLAKY ") for line in lines if line.startswith("FLAKY")]
    assert "".join(flaky) == (passed_again or "")
