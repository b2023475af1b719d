"""Which engines are expected to answer soon."""

import pytest

from core.state import Operation, Server
from proxy.servers.facts import is_starting


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (None, False),
        (Server(name="e", url="", own=True, lost="silent", expected_until=120.0), True),
        (Server(name="e", url="", own=True, lost="silent", expected_until=100.0), False),
        (Server(name="e", url="", own=True, expected_until=120.0), False),  # it answers: OFFLINE
        (Server(name="gpu", url="", lost="silent", expected_until=120.0), False),
        (Server(name="gpu", url="", work=Operation(title="Start")), True),
        (Server(name="gpu", url="", work=Operation(title="Start", phase="failed")), False),
    ],
)
def test_an_own_engine_not_seen_yet_or_one_with_a_start_in_progress_starts(
    server: Server | None, expected: bool
) -> None:
    assert is_starting(server, now=100.0) == expected
