"""Cost of a request: a naive proxy, a raw-socket floor and ours, with an instant stub.

    python -m bench.proxy_cost                  the bars, under 3 minutes
    python -m bench.proxy_cost --users 256      the same with a row more for so many users
    python -m bench.proxy_cost --soak           memory over 100,000 requests, a fifth of them left
    python -m bench.proxy_cost --soak --requests 1000000

N = 4: each request is 4 claims, 4 completions and 4 ends. All is in one run on this machine, each
part in a process of its own. The bars are a ratio of CPU to the naive proxy and a difference of
latency to the floor; milliseconds of CPU are printed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts
from bench.proxy_cost.run import Figures, Stub, Subject, child, measure, our_proxy, stand_in
from bench.proxy_cost.soak import KEEP_BYTES, soak

UNDER_NAIVE = 20.0
"""Least ratio of the naive proxy's CPU per request to ours, with 64 users."""
OVER_FLOOR = 100.0
"""Maximum p99 above the floor's in milliseconds, 64 users and completions of half a second."""
SECONDS = 4.0
ROUNDS = 3
"""Number of alternating rounds of naive, floor and ours with 64 users; the median counts."""
SLOW = 500.0
"""Milliseconds of a completion in the second half."""

_HEAD = (
    f"{'subject':10}{'users':>7}{'CPU ms/request':>17}"
    f"{'requests/s':>13}{'p50 ms':>10}{'p99 ms':>10}"
)


def show(name: str, figures: Figures) -> None:
    """Return one line of the table."""
    print(
        f"{name:10}{figures.users:7}{figures.cpu:17.3f}{figures.rate:13.1f}"
        f"{figures.p50:10.1f}{figures.p99:10.1f}",
        flush=True,
    )


def middle(rounds: list[Figures]) -> Figures:
    """Return the round with the median cost."""
    cost = statistics.median_low(figures.cpu for figures in rounds)
    return next(figures for figures in rounds if figures.cpu == cost)


def instant(verdicts: Verdicts, stub: Stub, subjects: tuple[Subject, ...], users: int) -> None:
    """Measure the CPU per request when the server answers at once."""
    print(f"\nThe server answers at once\n{_HEAD}")
    for count in sorted({1, 16, users} - {64}):
        for subject in subjects:
            show(subject.name, measure(subject, stub, count, seconds=SECONDS))
    rounds: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    for _ in range(ROUNDS):
        for subject in subjects:
            figures = measure(subject, stub, 64, seconds=SECONDS)
            show(subject.name, figures)
            rounds[subject.name].append(figures)
    ours = middle(rounds["ours"])
    ratio = middle(rounds["naive"]).cpu / ours.cpu
    verdicts.at_least("proxy_cost_under_naive", ratio, UNDER_NAIVE, "x")
    verdicts.info("proxy_cost_over_floor", ours.cpu / middle(rounds["floor"]).cpu, "x")
    errors = sum(figures.errors for figures in rounds["ours"])
    verdicts.at_most("proxy_errors", errors, 0, "requests")
    lost = sum(figures.unaccounted for figures in rounds["ours"])
    verdicts.at_most("proxy_episodes_unaccounted", lost, 0, "episodes")


def slow(verdicts: Verdicts, stub: Stub, subjects: tuple[Subject, ...], users: int) -> None:
    """Measure the latency of users when a completion takes time."""
    print(f"\nA completion takes {SLOW:g} ms\n{_HEAD}")
    stub.delay(SLOW)
    slowest: dict[str, float] = {}
    for count in sorted({64, users}):
        for subject in subjects:
            show(subject.name, figures := measure(subject, stub, count, seconds=2 * SECONDS))
            if count == 64:
                slowest[subject.name] = figures.p99
    over = slowest["ours"] - slowest["floor"]
    verdicts.at_most("proxy_p99_over_floor", over, OVER_FLOOR, "ms")
    stub.delay(0)


def streamed(stub: Stub, ours: Subject) -> None:
    """Measure the same request with `stream: true`; it has no bar."""
    print(f"\nStreamed, the server answers at once\n{_HEAD}")
    show("ours", measure(ours, stub, 64, "--stream", seconds=SECONDS))


def main() -> None:
    """Measure, print and compare with the bars."""
    parser = argparse.ArgumentParser(description="What a request costs.")
    parser.add_argument("--users", type=int, default=64, help="one more row with so many users")
    parser.add_argument("--soak", action="store_true", help="memory over many requests instead")
    parser.add_argument("--requests", type=int, default=100_000, help="of the soak")
    parser.add_argument(
        "--keep-bytes", type=int, default=KEEP_BYTES, help="limit of the soak's journal"
    )
    args = parser.parse_args()
    verdicts = Verdicts()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, child("bench.proxy_cost.stub") as (_, port):
        stub = Stub(port)
        with our_proxy(stub, Path(folder), args.keep_bytes if args.soak else None) as ours:
            if args.soak:
                home = Path(folder) / "home"
                soak(verdicts, ours, stub, args.requests, home, args.keep_bytes)
            else:
                with stand_in("naive", stub) as naive, stand_in("floor", stub) as floor:
                    instant(verdicts, stub, (naive, floor, ours), args.users)
                    slow(verdicts, stub, (naive, floor, ours), args.users)
                streamed(stub, ours)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    verdicts.close()


if __name__ == "__main__":
    main()
