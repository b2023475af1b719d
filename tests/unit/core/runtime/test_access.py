"""Named tokens: created once, valid until revoked or expired, never stored."""

import threading
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError, UsageError
from core.roles import Identity
from core.runtime.access import AccessTokens, lifetime
from core.runtime.home import Home


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


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
    assert sorted(one.name for one in AccessTokens(home).read()) == names
