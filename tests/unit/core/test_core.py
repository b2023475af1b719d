"""The small parts: home, roles, text, commands, sockets, tasks."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line, plain, redact
from core.commands import COMMANDS, CommandError, validate
from core.runtime.home import AlreadyRunning, Home, HomeError, Role, running
from core.runtime.sockets import BindError, bind, is_loopback


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


def test_a_token_that_is_a_link_to_nothing_is_told(home: Home, tmp_path: Path) -> None:
    home.token_file.symlink_to(tmp_path / "gone")
    with pytest.raises(HomeError, match=r"link to .*gone, which is not there") as failed:
        home.token()
    assert "Delete the link" in failed.value.todo
    (tmp_path / "gone").write_bytes(b"\xff\xfe")
    with pytest.raises(HomeError, match="cannot be read"):
        home.token()
    (tmp_path / "gone").write_text("a token\n")
    assert home.token() == "a token"


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


def test_looking_makes_and_changes_nothing(tmp_path: Path) -> None:
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
def test_a_folder_of_others_is_not_taken_for_a_home(tmp_path: Path, mode: int, name: str) -> None:
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


@given(st.text())
def test_plain_text_holds_no_control_and_nothing_invisible(text: str) -> None:
    shown = plain(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not any(0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u200b\u2066\ufeff")


def test_text_keeps_what_is_harmless() -> None:
    assert plain("Grüße 日本 🎉\n\t[b]x[/b]") == "Grüße 日本 🎉\n\t[b]x[/b]"
    assert plain("\x1b[31mred") == "␛[31mred"
    assert one_line("a\nb\n\nc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧", "👩👩👧"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f🌈"),
        ("می\u200cخواهم", "میخواهم"),
        ("USB\u200cها", "USBها"),
        ("क्\u200dष", "क्ष"),
    ],
)
def test_joiners_of_scripts_and_emoji_leave_no_sign(text: str, shown: str) -> None:
    assert plain(text) == one_line(text) == shown
    bare = shown.replace("\ufe0f", "")
    assert cell_len(bare) == sum(map(cell_len, bare))


@pytest.mark.parametrize(
    "text", ["\u200d", "ig\u200dnore", "a\u200c b", "م\u200c\u200c\u200cx", "م\u202ea", "👩\u2066"]
)
def test_joiners_where_nothing_is_joined_and_directions_are_shown(text: str) -> None:
    assert "\ufffd" in plain(text)
    assert not set(plain(text)) & set("\u200c\u200d\u202e\u2066")


def test_secrets_are_redacted() -> None:
    text = redact("key sk-ajet-eyJhZ2VudF9uYW1lIjoi and Bearer abcdefghijkl done")
    assert "eyJ" not in text
    assert "abcdefghijkl" not in text
    assert text.endswith("done")


def test_commands_are_checked() -> None:
    assert validate("group.rate", {"group_id": "g", "rating": "best", "order": "2"}) == {
        "group_id": "g",
        "rating": "best",
        "order": (2,),
    }
    for name, args, said in (
        ("group.rat", {}, "no command"),
        ("group.rate", {"group_id": "g"}, "needs `rating`"),
        ("group.rate", {"group_id": "g", "rating": "good"}, "Valid: best"),
        ("group.rate", {"group_id": "g", "rating": "scores", "scores": ["nan"]}, "cannot be"),
        ("group.abort", {"group_id": "g", "why": "x"}, "takes no `why`"),
        ("group.mark", {"group_id": "g", "marked": "perhaps"}, "cannot be"),
    ):
        with pytest.raises(CommandError, match=said):
            validate(name, args)


def test_command_names_and_titles_follow_one_form() -> None:
    for name, command in COMMANDS.items():
        assert name == command.name
        assert name.count(".") == 1
        assert ": " in command.title
        assert command.help


def test_a_taken_port_names_its_holder() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(BindError, match=f"pid {os.getpid()}"):
            bind("127.0.0.1", port)
        with pytest.raises(BindError, match=r"set `proxy\.port` to another port"):
            bind("127.0.0.1", port, setting="`proxy.port`")
        with bind("127.0.0.1", port, next_free=True) as other:
            assert other.getsockname()[1] > port


def test_a_foreign_address_is_said() -> None:
    with pytest.raises(BindError, match="cannot listen"):
        bind("203.0.113.7", 0)
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert socket.AF_INET


async def test_tasks_end_with_their_owner(caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def fail() -> None:
        raise ValueError("broken")

    async with Tasks("t") as tasks:
        tasks.spawn(work(), "work")
        tasks.spawn(fail(), "fail")
        await asyncio.sleep(0.01)
        assert len(tasks) == 1
    assert ended.is_set()
    assert "broken" in caplog.text
