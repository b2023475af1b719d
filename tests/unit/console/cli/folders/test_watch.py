"""What counts as a change of a folder that is debugged."""

from pathlib import Path

import pytest

from console.cli.folders.debug_episode import FolderWatch, stamps


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
