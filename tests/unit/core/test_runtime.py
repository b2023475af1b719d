"""What a process needs to run: its home, tokens, log, memory, secrets, sockets."""

import asyncio
import ctypes
import io
import json
import logging
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from core.journal import file as journal_file
from core.roles import Identity
from core.runtime import malloc
from core.runtime.access import AccessTokens, lifetime
from core.runtime.home import AlreadyRunning, Home, HomeError, Role, running
from core.runtime.log_format import setup
from core.runtime.secrets import has_redacted, proxy_key, read_key, redacted_argv, with_proxy_key
from core.runtime.sockets import BindError, bind, is_loopback
from core.settings import SettingsError, load, parse_servers
from core.settings.effective import HIDDEN


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_identifies_its_user_until_it_is_revoked(home: Home) -> None:
    tokens, proxy = AccessTokens(home), AccessTokens(home)
    assert proxy.identity("anything") is None
    text = tokens.add("anna", "rater")
    other = tokens.add("boris", "viewer")
    assert proxy.identity(text) == Identity("anna", "rater")
    assert proxy.identity(other) == Identity("boris", "viewer")
    assert proxy.identity(text[:-1]) is None
    assert proxy.identity("") is None
    assert text not in tokens.path.read_text()
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert tokens.revoke("anna").role == "rater"
    assert proxy.identity(text) is None
    assert proxy.identity(other) == Identity("boris", "viewer")


def test_a_token_expires(home: Home) -> None:
    clock = Clock()
    tokens = AccessTokens(home, clock)
    text = tokens.add("anna", "rater", lifetime("8h"))
    assert tokens.identity(text) == Identity("anna", "rater")
    clock.now += 8 * 3_600
    assert tokens.identity(text) is None
    again = tokens.add("anna", "viewer")  # the name is free again
    assert tokens.identity(again) == Identity("anna", "viewer")
    assert len(tokens.read()) == 1


@pytest.mark.parametrize("name", ["", "-x", "a b", "../x", "x" * 41, "é", "a\n"])
def test_an_invalid_name_is_refused(home: Home, name: str) -> None:
    with pytest.raises(UsageError, match="not a name"):
        AccessTokens(home).add(name, "rater")


def test_two_tokens_of_one_name_and_an_unknown_one_are_refused(home: Home) -> None:
    tokens = AccessTokens(home)
    tokens.add("anna", "rater")
    with pytest.raises(UsageError, match="there is a token named anna already"):
        tokens.add("Anna", "viewer")
    with pytest.raises(UsageError, match="no token named boris"):
        tokens.revoke("boris")


@pytest.mark.parametrize("text", ["", "h", "8", "8x", "-1h", "0h", "1.5h", "9999999d", "٣h"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--expires"):
        lifetime(text)


def test_a_damaged_file_permits_nobody_and_is_not_replaced(home: Home) -> None:
    tokens = AccessTokens(home)
    text = tokens.add("anna", "rater")
    tokens.path.write_text('{"tokens": [{"name": 1}]}')
    assert tokens.identity(text) is None
    with pytest.raises(AjetError, match="cannot be read"):
        tokens.add("boris", "rater")
    assert "boris" not in tokens.path.read_text()


def test_a_file_that_can_be_read_again_is_valid_again(home: Home) -> None:
    tokens = AccessTokens(home)
    text = tokens.add("anna", "rater")
    whole = tokens.path.read_bytes()
    tokens.path.unlink()
    tokens.path.mkdir()
    assert tokens.identity(text) is None
    tokens.path.rmdir()
    tokens.path.write_bytes(whole)
    assert tokens.identity(text) == Identity("anna", "rater")


def test_tokens_added_at_the_same_time_are_all_stored(home: Home) -> None:
    names = [f"rater-{number}" for number in range(8)]
    threads = [
        threading.Thread(target=lambda name=name: AccessTokens(home).add(name, "rater"))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(token.name for token in AccessTokens(home).read()) == names


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
    assert [path.name for path in folder.iterdir()] == [name]


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


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log; the loggers are restored afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    made = io.StringIO()
    setup("INFO", made)
    yield made
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_has_time_level_name_and_message(stream: io.StringIO) -> None:
    logging.getLogger("proxy").info("it %s", "listens")
    logging.getLogger("proxy").debug("not told")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO proxy: it listens\n", stream.getvalue()
    )


def test_keys_and_control_characters_do_not_reach_it(stream: io.StringIO) -> None:
    try:
        raise ValueError("sk-abcdefghijklmnop \x1b[31m")
    except ValueError:
        logging.getLogger("proxy").exception("with Bearer abcdefghijkl")
    text = stream.getvalue()
    assert "Traceback" in text
    assert "abcdefgh" not in text
    assert "\x1b" not in text


def test_libraries_log_only_warnings(stream: io.StringIO) -> None:
    logging.getLogger("httpx").info("HTTP Request: GET ...")
    logging.getLogger("httpx").warning("odd")
    assert stream.getvalue().count("\n") == 1


def test_setting_up_logging_twice_logs_once(stream: io.StringIO) -> None:
    setup("INFO", stream)
    logging.getLogger("x").info("once")
    assert stream.getvalue().count("once") == 1


SCRIPT = """
import ctypes, sys
from core.runtime.malloc import return_large_blocks

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]

if sys.argv[1] == "set":
    assert return_large_blocks()
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(3 << 20))
before = libc.mallinfo2().e  # bytes of blocks that are memory of their own
libc.malloc(3 << 20)
print(libc.mallinfo2().e - before >= 3 << 20)
"""


def _has_mallinfo2() -> bool:
    return sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallinfo2")


@pytest.mark.slow
@pytest.mark.skipif(not _has_mallinfo2(), reason="needs glibc 2.33")
@pytest.mark.parametrize(("how", "own"), [("set", "True"), ("default", "False")])
def test_a_large_block_is_memory_of_its_own(how: str, own: str) -> None:
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == own


def test_a_system_without_glibc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.return_large_blocks()
    monkeypatch.setattr(malloc.sys, "platform", "darwin")
    assert not malloc.return_large_blocks()


def test_a_key_is_read_from_its_file_which_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("  sk-of-the-file\n")
    settings = load(None, {}, {"proxy.api_key_file": str(file), "proxy.api_key": "sk-given"})
    assert proxy_key(settings.proxy) == "sk-of-the-file"
    assert with_proxy_key(settings).proxy.api_key == "sk-of-the-file"
    assert proxy_key(load(None, {}, {"proxy.api_key": "sk-given"}).proxy) == "sk-given"
    assert proxy_key(load(None, {}).proxy) == ""


@pytest.mark.parametrize(
    "held", [None, b"", b" \n", b"two words", "schl\u00fcssel".encode(), b"\xff"]
)
def test_a_file_without_a_usable_key_is_an_error_that_does_not_show_it(
    tmp_path: Path, held: bytes | None
) -> None:
    file = tmp_path / "key"
    if held is not None:
        file.write_bytes(held)
    with pytest.raises(UsageError, match="the key of /v1") as error:
        read_key(str(file), "the key of /v1")
    assert str(file) in str(error.value)
    assert "words" not in str(error.value)


@pytest.mark.parametrize("lines", [["--api-key", "sk-1"], ["--api-key=sk-1"]])
def test_a_run_file_has_no_key(lines: list[str]) -> None:
    result = redacted_argv(["proxy", *lines, "--port", "1", "--api-key-file", "f"])
    assert "sk-1" not in result
    assert HIDDEN in result
    assert json.loads(result)[-4:] == ["--port", "1", "--api-key-file", "f"]
    assert has_redacted(json.loads(result))
    assert not has_redacted(["proxy", "--api-key-file", "f"])


@pytest.mark.parametrize(
    "value",
    [
        "http://me:secret@gpu-box:10086",
        "gpu=https://me:secret@gpu-box",
        "http://secret@gpu-box:10086/path",
        "me:secret@gpu-box:10086",
    ],
)
def test_an_address_with_a_login_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(SettingsError, match="user or a password") as error:
        parse_servers([value])
    assert "secret" not in str(error.value)
    with pytest.raises(SettingsError) as error:
        load(None, {"AJET_SWARM_URL": value})
    assert "secret" not in str(error.value)


def test_an_at_sign_elsewhere_is_no_login() -> None:
    assert parse_servers(["http://gpu-box:10086/a@b"]) == "http://gpu-box:10086/a@b"


def test_a_taken_port_names_its_holder() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(BindError, match=f"pid {os.getpid()}"):
            bind("127.0.0.1", port)
        with pytest.raises(BindError, match=r"set `proxy\.port` to another port"):
            bind("127.0.0.1", port, setting="`proxy.port`")
        with bind("127.0.0.1", port, next_free=True) as other:
            assert other.getsockname()[1] > port


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(BindError, match="cannot listen"):
        bind("203.0.113.7", 0)
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert socket.AF_INET


async def test_accepted_connections_send_without_delay() -> None:
    """With Nagle's algorithm, the second part of a response waits 40 ms."""
    delays: list[int] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind("127.0.0.1", 0) as sock:
        async with await asyncio.start_server(accept, sock=sock):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            assert await reader.read() == b""
            writer.close()
    assert delays == [1]
