"""Folders: `init`, `skills`, and what counts as a change of a folder that is debugged."""

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from console.cli import main
from console.cli.episode import FolderWatch, stamps
from console.cli.folders import SKILLS, known
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText

ROOT = Path(__file__).resolve().parents[4]


PASSIVE = {
    "fake_vllm_endpoint.py",
    "on_user_submit_new_requests.py",
    "on_compute_relative_reward.py",
    "mock_user_request.py",
    "agent_run.py",
    "agent_roll.py",
    "readme.md",
    "dataset.jsonl",
}


def test_the_shipped_example_equals_the_written_folder(tmp_path: Path) -> None:
    assert main(["init", "blackbox", str(tmp_path / "blackbox"), "--yes"]) == 0
    example = ROOT / "examples" / "blackbox"
    assert set(known("blackbox")) <= {file.name for file in example.iterdir()}
    for name in known("blackbox"):
        assert (tmp_path / "blackbox" / name).read_text() == (example / name).read_text(), name


@pytest.mark.parametrize("kind", ["blackbox", "passive"])
def test_written_files_are_valid_python_with_the_given_values(tmp_path: Path, kind: str) -> None:
    rows = tmp_path / "mine.jsonl"
    rows.write_text("{}\n")
    value = ["--server", "http://gpu:10086/", "--model", 'a "b" $x', "--repeats", "6"]
    value += ["--batch", "2", "--dataset", str(rows)]
    assert main(["init", kind, str(tmp_path / "of me"), *value]) == 0
    files = {file.name: file.read_text() for file in (tmp_path / "of me").iterdir()}
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)
    roll = files["agent_roll.py"]
    assert not missing(
        roll,
        '"http://gpu:10086"',
        '"a \\"b\\" $x"',
        'whole("NUM_REPEAT", 6)',
        'whole("BATCH_SIZE", 2)',
    )
    assert "dataset.jsonl" not in files  # there is one already
    assert any(str(rows) in text for text in files.values())
    assert not missing(roll, "AJET_SWARM_URL", "REMOTE_MODEL_PATH")


@pytest.mark.parametrize(
    "case",
    [
        ("blackbox", "NUM_REPEAT", "x", "a whole number, 1 or more"),
        ("blackbox", "UPDATES", "-1", "a whole number, 0 or more"),
        ("blackbox", "EPISODE_TIMEOUT", "nan", "a whole number, 1 or more"),
        ("passive", "BATCH_SIZE", "0", "a whole number from 1 to 1000000"),
        ("passive", "PORT", "70000", "a whole number from 1 to 65535"),
    ],
)
def test_an_invalid_number_in_the_environment_is_reported(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[str, str, str, str],
) -> None:
    kind, name, text, must = case
    cli.run("init", kind, tmp_path, "--yes")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(name, text)
    before = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tmp_path / "agent_roll.py"))
    for one in {path.stem for path in tmp_path.glob("*.py")} - before:
        sys.modules.pop(one, None)
    assert ended.value.code == 2
    result = f"agent_roll: {name}={text!r} in the environment: must be {must}\n"
    assert capsys.readouterr().err == result


def test_a_passive_folder_is_complete(tmp_path: Path) -> None:
    assert main(["init", "passive", str(tmp_path / "app"), "--yes"]) == 0
    assert {file.name for file in (tmp_path / "app").iterdir()} == PASSIVE


def test_existing_files_are_kept(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    output = cli.out("init", "blackbox", tmp_path, "--yes")
    assert (tmp_path / "agent.py").read_text() == "mine"
    assert f"kept   {tmp_path / 'agent.py'}" in output
    assert "nothing was changed" not in output
    shown = cli.out("init", "blackbox", tmp_path, "--yes")
    assert "nothing was changed: all files exist already" in shown
    cli("init", "blackbox", tmp_path, "--yes", "--force")
    assert (tmp_path / "agent.py").read_text() != "mine"


def test_missing_values_are_asked_for(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TerminalText("http://far:1\n2\n\n5\n\n\n"))
    prompts = cli.err("init", "passive", tmp_path / "app", "--model", "m")
    roll = (tmp_path / "app" / "agent_roll.py").read_text()
    assert not missing(roll, '"http://far:1"', '"m"', 'whole("REMOTE_ALLOCATE_GPU_PER_NODE", 2)')
    assert not missing(roll, 'whole("NUM_REPEAT", 4)', 'whole("BATCH_SIZE", 5)')
    assert "swarm server [http://localhost:10086]" in prompts
    assert "model it trains" not in prompts


def test_the_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AJET_SWARM_URL", "http://env:2")
    monkeypatch.setenv("REMOTE_MODEL_PATH", "/models/x")
    assert main(["init", "blackbox", str(tmp_path), "--yes"]) == 0
    roll = (tmp_path / "agent_roll.py").read_text()
    assert not missing(roll, '"http://env:2"', '"/models/x"')


@pytest.mark.parametrize(
    ("flags", "result"),
    [
        (["--server", "gpu"], "not an address"),
        (["--server", "http://bad host"], "not an address"),
        (["--server", "http://me:secret@gpu:10086"], "not an address"),
        (["--server", "http://gpu:port"], "not an address"),
        (["--repeats", "1"], "at least 2"),
        (["--dataset", "nowhere.jsonl"], "no such file"),
    ],
)
def test_wrong_use_is_reported_and_writes_nothing(
    cli: Cli, tmp_path: Path, flags: list[str], result: str
) -> None:
    assert result in cli.refused("init", "blackbox", tmp_path / "new", "--yes", *flags)
    assert not (tmp_path / "new").exists()


FILES = sorted(SKILLS.glob("*/SKILL.md"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_skill_is_a_page_with_name_and_description(file: Path) -> None:
    text = file.read_text()
    _, front, body = text.split("---\n", 2)
    head = yaml.safe_load(front)
    assert (set(head), head["name"]) == ({"name", "description"}, file.parent.name)
    assert "Use it when" in head["description"]
    assert body.strip().startswith("# ")
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_commands_of_a_skill_parse(file: Path, cli: Cli) -> None:
    lines = re.findall(r"^ *ajet-console (.*)$", file.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        assert "usage" in cli.out(*shlex.split(line), "--help").lower()


def test_all_skills_are_written_once(cli: Cli, tmp_path: Path) -> None:
    assert "would write" in cli.out("skills", tmp_path / "skills", "--dry-run")
    assert not (tmp_path / "skills").exists()
    written = cli.json("skills", tmp_path / "skills")["files"]
    assert len(written) == len(FILES) == 3
    assert [Path(name).read_text() for name in written] == [file.read_text() for file in FILES]


def test_existing_files_are_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / FILES[-1].relative_to(SKILLS)
    mine.parent.mkdir()
    mine.write_text("mine")
    assert "--force" in cli.refused("skills", tmp_path)
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [mine.parent.name]
    cli("skills", tmp_path, "--force")
    assert mine.read_text() == FILES[-1].read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("run.py", "agent.sh", "lib/deep/tool.py", ".venv/x.py", "__pycache__/run.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.js").write_text("1")
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


def after_a_run(folder: Path, **written: str) -> FolderWatch:
    watch = FolderWatch(folder)
    run(watch, folder, **written)
    return watch


def run(watch: FolderWatch, folder: Path, **written: str) -> None:
    watch.run_started()
    for name, text in written.items():
        (folder / name).write_text(text)
    watch.run_ended()


@pytest.mark.parametrize("name", ["agent.sh", "lib/deep/tool.py", "new.txt"])
def test_an_edited_file_is_a_change(folder: Path, name: str) -> None:
    watch = after_a_run(folder)
    assert not watch.changed()
    (folder / name).write_text("changed")
    assert watch.changed()


@pytest.mark.parametrize("name", [".venv/x.py", "__pycache__/run.pyc", "node_modules/x.js"])
def test_files_written_by_tools_are_no_change(folder: Path, name: str) -> None:
    watch = after_a_run(folder)
    (folder / name).write_text("changed")
    assert not watch.changed()


def test_files_written_by_a_run_do_not_cause_endless_runs(folder: Path) -> None:
    watch = after_a_run(folder, log="first")
    assert not watch.changed()  # new, so the run's own
    run(watch, folder, log="first, second")
    assert watch.changed()  # an edit during the run would have the same effect
    run(watch, folder, log="first, second, third")
    assert not watch.changed()
    (folder / "run.py").write_text("edited")
    assert watch.changed()


def test_a_deleted_file_is_a_change_and_a_huge_folder_is_bounded(folder: Path) -> None:
    watch = after_a_run(folder)
    (folder / "agent.sh").unlink()
    assert watch.changed()
    assert len(stamps(folder, most=1)) == 1
    few = FolderWatch(folder, most=1)
    few.run_started()
    assert few.full
