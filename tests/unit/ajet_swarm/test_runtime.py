"""The draws of a runtime: their form, and that a seed repeats them."""

import random
import re
import time

from ajet_swarm.runtime import SYSTEM, Chance


def test_the_draws_of_a_seed_repeat() -> None:
    first, second = (Chance(random.Random(7)) for _ in range(2))
    draws = [(chance.uniform(1, 2), chance.token(4), chance.uuid()) for chance in (first, second)]
    assert draws[0] == draws[1]
    assert 1 <= draws[0][0] <= 2


def test_ids_have_the_form_that_readers_expect() -> None:
    chance = SYSTEM.chance
    assert all(re.fullmatch(r"[0-9a-f]{16}", chance.token(8)) for _ in range(200))
    uuid = chance.uuid()
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uuid
    )
    assert uuid != chance.uuid()


def test_the_system_has_the_clocks_of_the_process() -> None:
    assert SYSTEM.clock.wall is time.time
    assert SYSTEM.clock.monotonic is time.monotonic
