"""Who started an engine, and which server a name means."""

import pytest

from core.events import EngineChanged, Event, JobSent, OperationStep, ProxyStarted, WorkChanged
from core.state import Server, State, reduce
from tests.support.sample import stamp

URL = "http://gpu:10086"


def proxy(url: str = URL, name: str = "gpu") -> ProxyStarted:
    return ProxyStarted(
        client_uuid="me",
        pid=1,
        url="http://127.0.0.1:8000",
        version="1",
        servers={name: url},
        rewards="builtin",
    )


def engine(state: str, step: int | None = None, name: str = "gpu") -> EngineChanged:
    return EngineChanged(server=name, url=URL, state=state, raw=f"ENGINE.{state}", step=step)


def work(phase: str) -> WorkChanged:
    step = OperationStep(title="start the engine", phase="done", began=1.0, ended=2.0)
    return WorkChanged(server="gpu", work="Resume", steps=(step,), phase=phase)


def server(*events: Event, name: str = "gpu") -> Server:
    state = State()
    for event in events:
        reduce(state, stamp(event, state.seq + 1))
    return state.servers[name]


@pytest.mark.parametrize(
    ("events", "foreign"),
    [
        ([proxy(), engine("ROLLING", 3)], True),
        ([proxy(), engine("OFFLINE"), engine("BOOTING")], True),
        ([proxy(), engine("OFFLINE"), work("doing"), engine("BOOTING"), work("done")], False),
        ([proxy(), engine("OFFLINE"), work("doing"), work("done"), engine("BOOTING")], False),
        ([proxy(), engine("OFFLINE"), work("doing"), proxy(), engine("ROLLING", 1)], False),
        ([proxy(), JobSent(server="gpu", yaml="ajet: {}"), engine("ROLLING", 1)], False),
        ([proxy(), engine("ROLLING", 1), JobSent(server="gpu", yaml="ajet: {}")], False),
    ],
    ids=[
        "running when first seen",
        "started by another client",
        "ordered",
        "ordered and seen late",
        "ordered by a proxy that was killed",
        "its job was sent from here",
        "a job was sent since",
    ],
)
def test_a_start_that_was_not_ordered_here(events: list[Event], foreign: bool) -> None:
    assert (server(*events).foreign_start > 0) is foreign


def test_nothing_known_of_a_server_counts_for_another_of_its_name() -> None:
    sent = JobSent(server="gpu", yaml="ajet: {}")
    same = server(proxy(), sent, engine("ROLLING", 4), proxy())
    assert same.job is not None
    assert same.steps
    other = server(proxy(), sent, engine("ROLLING", 4), proxy("http://other:10086"))
    assert other.url == "http://other:10086"
    assert other.job is None
    assert not other.steps


def test_the_embedded_engine_stays_the_same_on_another_port() -> None:
    sent = JobSent(server="embedded", yaml="ajet: {}")
    moved = server(
        proxy("http://127.0.0.1:1", "embedded"),
        sent,
        proxy("http://127.0.0.1:2", "embedded"),
        name="embedded",
    )
    assert moved.job is not None
    assert moved.url == "http://127.0.0.1:2"
