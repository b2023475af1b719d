"""The Makefile chooses files by their marks: no test is lost by that."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MAKEFILE = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
HERE = Path(__file__).name


def sources() -> dict[Path, str]:
    """Return the sources of the tests and of what they share."""
    files = (path for path in TESTS.rglob("*.py") if path.name != HERE)
    return {path: path.read_text(encoding="utf-8") for path in files}


def test_make_process_runs_each_test_that_starts_processes() -> None:
    """It collects the files that contain `mark.process`: no test has the mark from elsewhere."""
    assert "SOME_PROCESS := grep -rlE --include='test_*.py' 'mark\\.process' tests" in MAKEFILE
    for path, text in sources().items():
        if re.search(r"""add_marker\(\s*["']process|getattr\([\w.]*mark|mark\[""", text):
            raise AssertionError(f"{path}: write the mark as `pytest.mark.process`")
        if "mark.process" in text:
            assert path.name.startswith("test_"), f"{path}: a mark belongs into the test's file"
            assert not re.search(r"^[A-Z_]+ = .*mark\.process", text, re.M), path


def test_make_beside_omits_only_files_in_which_all_tests_start_processes() -> None:
    """A `pytestmark` at the top of a file is that of all its tests; no later one replaces it."""
    assert "'^pytestmark = .*mark\\.process' tests" in MAKEFILE
    omitted = {
        path: text
        for path, text in sources().items()
        if re.search(r"^pytestmark = .*mark\.process", text, re.M)
    }
    assert omitted
    for path, text in omitted.items():
        assert len(re.findall(r"^pytestmark\b", text, re.M)) == 1, path


def test_make_deals_out_the_pilot_tests_and_all_others() -> None:
    """The files of one are those that the other leaves out."""
    assert "\nPILOT := $(NOT_ALL_PROCESS) | grep '^tests/pilot/'\n" in MAKEFILE
    assert "\nNOT_PILOT := $(NOT_ALL_PROCESS) | grep -v '^tests/pilot/'\n" in MAKEFILE
    for part, files in (("pilot", "PILOT),$(PILOTS)"), ("beside", "NOT_PILOT),$(PARTS)")):
        assert re.search(rf"^{part}-%:.*\n.*call SHARD,\$\({re.escape(files)}\)", MAKEFILE, re.M)
        assert f":%={part}-%)" in MAKEFILE
