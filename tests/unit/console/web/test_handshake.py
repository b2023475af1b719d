"""Host and Origin of a request; the key of a link and its cookie."""

from pathlib import Path

from console.web.handshake import Addresses, Handshake
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home


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
