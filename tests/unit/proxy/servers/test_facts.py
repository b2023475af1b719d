"""Which engines are expected to answer soon."""

import pytest

from core.events import WorkChanged
from core.state import Server
from proxy.servers.facts import is_starting

STOPPED = WorkChanged(work="Stop", phase="done", began=90.0)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (None, False),
        (Server(name="e", url="", own=True, lost="silent", expected_until=120.0), True),
        (Server(name="e", url="", own=True, lost="silent", expected_until=100.0), False),
        (Server(name="e", url="", own=True, expected_until=120.0), False),  # it answers: OFFLINE
        (Server(name="gpu", url="", lost="silent", expected_until=120.0), False),
        (Server(name="gpu", url="", work=WorkChanged(work="Start")), True),
        (Server(name="gpu", url="", work=WorkChanged(work="Start", phase="failed")), False),
    ],
)
def test_an_own_engine_not_seen_yet_or_one_with_a_start_in_progress_starts(
    server: Server | None, expected: bool
) -> None:
    assert is_starting(server, now=100.0) == expected


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Server(name="e", url="", own=True, expected_until=120.0), True),
        (Server(name="e", url="", own=True, expected_until=120.0, work=STOPPED), True),
        (Server(name="e", url="", own=True, expected_until=109.0, work=STOPPED), False),
        (Server(name="gpu", url="", expected_until=120.0), False),
    ],
    ids=["no command", "stopped under the last proxy", "stopped under this one", "not its own"],
)
def test_an_announced_start_of_the_own_engine_holds_until_a_command(
    server: Server, expected: bool
) -> None:
    """The proxy started 20 s before `expected_until`."""
    assert is_starting(server, now=100.0, starts_by=101.0) == expected
    assert not is_starting(server, now=101.0, starts_by=101.0)
