"""Whether memory stays constant over many requests, a fifth of which are abandoned."""

import time

from bench.bars import Verdicts
from bench.proxy_cost.run import Stub, Subject, load, settled

USERS = 64
LEAVING = 0.2
STEPS = 20
DELAY = 20.0
"""Milliseconds of a completion; users that leave do so during one."""
FLAT = 10.0
"""Maximum growth in MB from the mean of the second quarter to the mean of the last."""


def soak(verdicts: Verdicts, ours: Subject, stub: Stub, requests: int) -> None:
    """Send requests and measure the memory in between."""
    stub.delay(DELAY)
    resident: list[float] = []
    requests_sent = left = errors = 0
    with load(ours.port, USERS, "--leaving", str(LEAVING)) as crowd:
        for _ in range(STEPS):
            seen = crowd.round(requests=requests / STEPS, seconds=600)
            requests_sent += seen["requests"] + seen["left"]
            left += seen["left"]
            errors += seen["errors"]
            resident.append(ours.resident())
            print(
                f"{requests_sent:8} requests, {left} left, {errors} errors, {resident[-1]:.1f} MB, "
                f"{seen['requests'] / seen['seconds']:.0f}/s",
                flush=True,
            )
    time.sleep(1.0)
    counts = settled(stub)
    quarter = STEPS // 4
    early = sum(resident[quarter : 2 * quarter]) / quarter
    late = sum(resident[-quarter:]) / quarter
    verdicts.at_least("soak_requests", requests_sent, requests * 0.98, "requests")
    verdicts.at_least("soak_left", left / requests_sent, LEAVING * 0.5, "of all")
    verdicts.at_most("soak_errors", errors, 0, "requests")
    verdicts.at_most("soak_growth", late - early, FLAT, "MB")
    verdicts.at_most("soak_claims_left", counts["open"], 0, "episodes")
    verdicts.at_most("soak_ends_lost", counts["lost"], 0, "ends")
    stub.delay(0)
