"""Whether memory, open files and journal stay bounded over many requests, a fifth abandoned."""

import time
from pathlib import Path

from bench.bars import Verdicts
from bench.proxy_cost.run import Stub, Subject, load, settled

USERS = 64
LEAVING = 0.2
STEPS = 20
DELAY = 20.0
"""Milliseconds of a completion; users that leave do so during one."""
FLAT = 10.0
"""Maximum growth in MB from the mean of the second quarter to the mean of the last."""
KEEP_BYTES = 200_000_000
"""Default limit of the journal: what about 180,000 requests write."""
OVER = 1.5
"""Maximum size of the journal with its log, as a multiple of the limit: the size is checked every
minute, in which this load writes 40 MB, and pruning gives way to requests."""


def soak(
    verdicts: Verdicts, ours: Subject, stub: Stub, requests: int, home: Path, keep_bytes: int
) -> None:
    """Send requests and measure memory, open files and journal in between.

    Args:
        verdicts: Receives the results.
        ours: The proxy.
        stub: Its server.
        requests: Number of requests.
        home: Folder of the journal.
        keep_bytes: Limit of the journal.
    """
    stub.delay(DELAY)
    resident: list[float] = []
    files: list[int] = []
    stored: list[float] = []
    requests_sent = left = errors = 0
    with load(ours.port, USERS, "--leaving", str(LEAVING)) as crowd:
        for _ in range(STEPS):
            seen = crowd.round(requests=requests / STEPS, seconds=600)
            requests_sent += seen["requests"] + seen["left"]
            left += seen["left"]
            errors += seen["errors"]
            resident.append(ours.resident())
            files.append(ours.files())
            stored.append(sum(file.stat().st_size for file in home.glob("journal.db*")) / 1e6)
            print(
                f"{requests_sent:8} requests, {left} left, {errors} errors, {resident[-1]:.1f} MB, "
                f"{files[-1]} files, journal {stored[-1]:.0f} MB, "
                f"{seen['requests'] / seen['seconds']:.0f}/s, p50 {seen['p50']:.0f} ms, "
                f"p99 {seen['p99']:.0f} ms",
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
    verdicts.at_most("soak_files_growth", max(files[-quarter:]) - max(files[:quarter]), USERS, "")
    verdicts.at_most("soak_journal", max(stored), OVER * keep_bytes / 1e6, "MB")
    verdicts.at_most("soak_claims_left", counts["open"], 0, "episodes")
    verdicts.at_most("soak_ends_lost", counts["lost"], 0, "ends")
    stub.delay(0)
