"""The speed of token steps: with and without pauses, over the newest ones or since an update."""

import pytest

from engine.policy.speed import SamplingSpeed


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_speed_has_the_pauses_of_the_work_and_ends_some_time_after_it(clock: Clock) -> None:
    speed = SamplingSpeed(newest=256, lasts=10.0, clock=clock)
    assert speed.tokens_per_second is None
    speed.begin()
    assert speed.tokens_per_second is None
    for _ in range(4):
        clock.now += 0.2
        speed.note(10)
        clock.now += 0.1  # a user's answer came first
    assert speed.tokens_per_second == pytest.approx(40 / 1.1)
    clock.now += 30.0
    assert speed.tokens_per_second is not None  # a long step of a slow model
    speed.end()
    assert speed.tokens_per_second is None
    speed.begin()
    assert speed.tokens_per_second is None
    clock.now += 1.0
    speed.note(5)
    speed.end()
    assert speed.tokens_per_second == pytest.approx(5.0)
    clock.now += 9.0
    speed.begin()
    clock.now += 1.0
    speed.note(15)
    assert speed.tokens_per_second == pytest.approx(10.0)  # without the pause


def test_a_speed_of_the_newest_steps_forgets_older_ones(clock: Clock) -> None:
    speed = SamplingSpeed(newest=2, clock=clock)
    for tokens in (100, 4, 6):
        speed.begin()
        clock.now += 1.0
        speed.note(tokens)
    assert speed.tokens_per_second == pytest.approx(5.0)
    assert speed.seconds == pytest.approx(2.0)


def test_a_speed_since_an_update_is_that_before_it_until_the_next_step(clock: Clock) -> None:
    speed = SamplingSpeed(clock=clock)
    for _ in range(300):
        speed.begin()
        clock.now += 0.5
        speed.note(4)
        clock.now += 7.0  # nobody asks
    assert speed.tokens_per_second == pytest.approx(8.0)
    assert speed.seconds == pytest.approx(150.0)
    speed.restart()
    assert (speed.tokens_per_second, speed.seconds) == (pytest.approx(8.0), 0.0)
    speed.restart()
    assert speed.tokens_per_second == pytest.approx(8.0)
    speed.begin()
    clock.now += 0.5
    speed.note(1)
    assert (speed.tokens_per_second, speed.seconds) == (pytest.approx(2.0), 0.5)
