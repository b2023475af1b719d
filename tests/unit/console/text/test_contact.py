"""What a server is called that does not answer: it starts, is gone, or was never there."""

import pytest

from console.text.contact import is_starting, lost_text, lost_word
from console.text.format import state_text, state_word
from core.events import EngineChanged, EngineLost, ProxyStarted
from core.state import Server, reduce
from core.state.proxy import ANSWERS_WITHIN, STARTS_WITHIN
from tests.support.sample import NOW, stamp, state_of


def started(**servers: str) -> ProxyStarted:
    return ProxyStarted(
        client_uuid="c",
        pid=1,
        url="http://p",
        version="1",
        servers=servers,
        embedded=("own",),
        rewards="builtin",
    )


def cold() -> dict[str, Server]:
    """The home's own engine and a remote server, right after the proxy's start."""
    refused = "gone: connection refused"
    return state_of(
        started(own="http://own", far="http://far"),
        EngineLost(server="own", error=refused, seen_at=0.0),
        EngineLost(server="far", error=refused, seen_at=0.0),
    ).servers


@pytest.mark.parametrize(("name", "limit"), [("own", STARTS_WITHIN), ("far", ANSWERS_WITHIN)])
def test_a_starting_server_does_not_count_as_lost_before_its_limit(name: str, limit: float) -> None:
    server = cold()[name]
    for seconds in (0.0, limit - 1):
        now = NOW + seconds
        assert is_starting(server, now)
        assert lost_text(server, now) == "STARTING"
        assert "STARTING" in state_text(server, now).forms[0]
        assert state_text(server, now).color == "$engine-booting"
        assert "GONE" not in state_word(server, now)[0]
    late = NOW + limit + 1
    assert lost_text(server, late) == "NOT REACHED"
    assert state_text(server, late).forms[0] == "× GONE · NOT REACHED"


def test_a_server_that_stops_answering_is_gone_at_once() -> None:
    state = state_of(
        started(own="http://own"),
        EngineChanged(server="own", state="ROLLING", step=3),
        EngineLost(server="own", error="gone: refused", seen_at=NOW),
    )
    server = state.servers["own"]
    assert lost_text(server, NOW + 3) == "GONE 3s (was ROLLING)"
    assert state_word(server, NOW + 36)[0] == "× GONE 36s (was ROLLING)"
    reduce(state, stamp(started(own="http://own"), 9))
    assert lost_text(state.servers["own"], NOW + 1) == "STARTING"


@pytest.mark.parametrize("word", ["gone", "frozen", "silent", "unrecognized"])
def test_a_lost_server_is_shown_by_its_trouble(word: str) -> None:
    lost = EngineLost(server="own", error=f"{word}: no answer", seen_at=NOW)
    state = state_of(started(own="http://own"), EngineChanged(server="own", state="ROLLING"), lost)
    assert lost_word(state.servers["own"]) == word.upper()
