"""Which requests may overtake others, by what their connection did last."""

import pytest

from proxy.http.connection_use import IDLE, ConnectionUses

CLIENT = ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("pause", "waited", "lag"),
    [
        (0.5, False, IDLE - 0.5),
        (0.5, True, None),
        (IDLE, False, 0.0),
        (IDLE, True, 0.0),
    ],
)
def test_a_request_may_overtake_unless_the_one_before_it_waited(
    pause: float, waited: bool, lag: float | None
) -> None:
    now = 100.0
    uses = ConnectionUses(lambda: now)
    first = uses.begin(CLIENT)
    assert first.lag == 0.0
    first.waited = waited
    now += 60.0
    uses.end(CLIENT, first)
    now += pause
    assert uses.begin(("127.0.0.1", 2)).lag == 0.0  # of another connection
    assert uses.begin(CLIENT).lag == lag


def test_uses_are_forgotten() -> None:
    now = 0.0
    uses = ConnectionUses(lambda: now)
    for port in range(1000):
        uses.end(("127.0.0.1", port), uses.begin(("127.0.0.1", port)))
        now += 0.1
        assert len(uses) <= IDLE / 0.1 + 1
