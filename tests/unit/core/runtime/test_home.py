"""The home: made for one user, and one process for each role."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from core.journal import file as journal_file
from core.runtime.home import AlreadyRunning, Home, HomeError, Role, running


def test_the_token_is_made_once_and_private(home: Home) -> None:
    token = home.token()
    assert len(token) > 30
    assert home.token() == token
    assert stat.S_IMODE(home.token_file.stat().st_mode) == 0o600


def test_a_token_that_others_can_read_is_closed(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    token = home.token()
    home.token_file.chmod(0o644)
    assert home.token() == token
    assert stat.S_IMODE(home.token_file.stat().st_mode) == 0o600
    assert "was open to others (mode 644)" in caplog.text


def test_a_token_that_is_a_broken_link_is_an_error(home: Home, tmp_path: Path) -> None:
    home.token_file.symlink_to(tmp_path / "gone")
    with pytest.raises(HomeError, match=r"link to .*gone, which is not there") as failed:
        home.token()
    assert "Delete the link" in failed.value.todo
    (tmp_path / "gone").write_bytes(b"\xff\xfe")
    with pytest.raises(HomeError, match="cannot be read"):
        home.token()
    (tmp_path / "gone").write_text("a token of our own\n")
    assert home.token() == "a token of our own"


def test_a_token_that_is_too_short_or_no_file_is_an_error(home: Home) -> None:
    home.token_file.write_text("x\n")
    with pytest.raises(HomeError, match="the token file has only 1 characters"):
        home.token()
    with home.token_file.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(HomeError, match="larger than 64 KiB"):
        home.token()
    home.token_file.unlink()
    os.mkfifo(home.token_file, 0o600)
    with pytest.raises(HomeError, match="no regular file"):
        home.token()


def test_permissions_of_what_a_link_names_stay(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("a token of somebody else")
    other.chmod(0o644)
    home.token_file.symlink_to(other)
    assert home.token() == "a token of somebody else"
    home.journal.symlink_to(other)
    journal_file.create(home.journal)
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    (tmp_path / "linked").symlink_to(folder)
    with pytest.raises(HomeError, match=r"open to others .* a link"):
        Home.open(tmp_path / "linked")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_home_is_made_for_one_user_and_an_open_one_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Home.open(tmp_path / "new" / "home")
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700
    assert not caplog.records
    made.root.chmod(0o755)
    Home.open(made.root)
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700
    assert "was open to others (mode 755)" in caplog.text


def test_inspecting_a_home_changes_nothing(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "new")
    with pytest.raises(HomeError, match="there is no home here"):
        home.token()
    assert not home.exists
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o755)
    with pytest.raises(HomeError, match="there is no home here"):
        Home.at(tmp_path).token()
    assert not list(tmp_path.iterdir())
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("mode", "name"), [(0o755, "theirs.txt"), (0o1777, "theirs.txt"), (0o1777, "token")]
)
def test_a_folder_with_other_content_is_not_used_as_a_home(
    tmp_path: Path, mode: int, name: str
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / name).touch()
    folder.chmod(mode)
    with pytest.raises(HomeError, match=f"open to others .mode {mode:o}. and not made for a home"):
        Home.open(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == mode
    assert [one.name for one in folder.iterdir()] == [name]


@pytest.mark.parametrize("name", ["", "config.yaml", "hooks"])
def test_a_folder_made_ready_for_a_home_is_taken(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(0o755)
    if name:
        (folder / name).touch()
    assert Home.open(folder).exists
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.slow
def test_a_role_is_held_by_one_and_goes_with_its_process(home: Home) -> None:
    code = (
        "import sys,time; from core.runtime.home import Home, Role; from pathlib import Path\n"
        "with Role(Home.open(Path(sys.argv[1])), 'engine') as role:\n"
        "    role.publish(port=5, url='http://x'); print('up', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(home.root)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout as out:
        assert out.readline() == "up\n"
        info = running(home, "engine")
        assert info is not None
        assert (info.pid, info.port) == (child.pid, 5)
        with pytest.raises(AlreadyRunning, match=str(child.pid)), Role(home, "engine"):
            pass
        child.kill()
        child.wait(60)
    assert running(home, "engine") is None
    with Role(home, "engine"):
        assert running(home, "engine") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HomeError, match="cannot be written"):
        Home.open(tmp_path / "x")


def test_a_home_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError) as caught:
        Home.open(tmp_path / "file" / "home")
    assert "AJET_CONSOLE_HOME" in str(caught.value)
