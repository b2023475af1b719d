"""What a console in a browser may open, and who may open it."""

import os
import sys
from pathlib import Path

import pytest

import console.web
from console.web.guard import NotInBrowser, auditor
from console.web.handshake import Addresses, Handshake
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home

READ = os.O_RDONLY


WRITE = os.O_WRONLY | os.O_CREAT


def test_only_the_own_folder_is_written_and_only_the_program_is_read(tmp_path: Path) -> None:
    own, cert = tmp_path / "own", tmp_path / "cert.pem"
    own.mkdir()
    (own / "way-out").symlink_to(tmp_path)
    check = auditor(own, [str(cert)])
    program = str(Path(console.web.__file__))
    for event, args in (
        ("open", (str(own / "journal.db"), "w", WRITE)),
        ("open", (str(cert), "r", READ)),
        ("open", (program, "r", READ)),
        ("open", (os.__file__, None, READ)),
        ("open", (os.devnull, "w", WRITE)),
        ("open", (7, "w", WRITE)),
        ("os.scandir", (str(own),)),
        ("os.remove", (str(own / "x"), -1)),
        ("socket.connect", ()),
    ):
        check(event, args)
    for event, args in (
        ("open", ("/etc/passwd", "r", READ)),
        ("open", (b"/etc/passwd", None, READ)),
        ("open", (str(tmp_path / "token"), "r", READ)),
        ("open", (str(own / ".." / "token"), "r", READ)),
        ("open", (str(own / "way-out" / "token"), "r", READ)),
        ("open", (str(tmp_path / "own-other"), "r", READ)),
        ("open", (f"/proc/{os.getppid()}/environ", "r", READ)),
        ("open", (program, "w", WRITE)),
        ("open", (program, None, os.O_RDWR)),
        ("open", (str(cert), "a", WRITE)),
        ("os.scandir", ("/home",)),
        ("os.listdir", (str(tmp_path),)),
        ("os.remove", (program, -1)),
        ("os.rename", (str(own / "x"), str(tmp_path / "x"), -1, -1)),
        ("subprocess.Popen", (sys.executable, [], None, None)),
        ("os.system", ("true",)),
        ("os.posix_spawn", ("true", [], {})),
    ):
        with pytest.raises(NotInBrowser):
            check(event, args)


def test_a_page_of_another_site_port_or_name_is_refused() -> None:
    here = Addresses("127.0.0.1", "", elsewhere=False)
    for host in ("127.0.0.1:8090", "localhost:8090", "LOCALHOST", "[::1]:8090"):
        assert here.served({"Host": host})
        assert here.same_origin({"Host": host, "Origin": f"http://{host}"})
    for host in (
        "",
        "evil.example",
        "evil.example:8090",
        "10.0.0.5:8090",
        "127.0.0.1.evil.example",
    ):
        assert not here.served({"Host": host})
    host = {"Host": "127.0.0.1:8090"}
    for origin in (
        "http://127.0.0.1:8091",
        "http://localhost:8090",
        "https://evil.example",
        "null",
    ):
        assert not here.same_origin({**host, "Origin": origin})
    assert not here.same_origin(host)


def test_a_public_address_is_served_and_other_names_are_not() -> None:
    there = Addresses("0.0.0.0", "https://gpu.example/console", elsewhere=True)
    assert there.served({"Host": "gpu.example"})
    assert there.served({"Host": "10.0.0.5:8090"})  # in digits: no name of another site
    assert not there.served({"Host": "evil.example"})
    assert not there.served({"Host": "gpu-box:8090"})
    assert Addresses("0.0.0.0", "", True, "gpu-box").served({"Host": "GPU-box:8090"})
    tunnel = {"Host": "127.0.0.1:8090", "Origin": "https://gpu.example"}
    assert Addresses("127.0.0.1", "https://gpu.example:443", elsewhere=False).same_origin(tunnel)
    assert there.same_origin(tunnel)
    assert not there.same_origin({**tunnel, "Origin": "https://gpu.example.evil.example"})


async def test_a_cookie_is_not_the_key_and_ends_with_it(tmp_path: Path) -> None:
    tokens = AccessTokens(Home.open(tmp_path / "home"))
    handshake = Handshake(tokens)
    key = tokens.add("anna", "rater", 60)
    cookie = await handshake.cookie_for(key)
    assert key not in cookie
    assert handshake.token_of(cookie) == key
    assert handshake.token_of("other") == handshake.token_of("") == ""
    assert await handshake.identity(key) == Identity("anna", "rater")
    other = tokens.add("vera", "viewer", 60)
    assert len({await handshake.cookie_for(other) for _ in range(20)}) == 1
    assert handshake.token_of(cookie) == key  # no other link signs it out
    tokens.revoke("anna")
    assert await handshake.identity(key) is None
    await handshake.cookie_for(other)
    assert handshake.token_of(cookie) == ""
