"""Cost of a request: a naive proxy, a raw-socket floor and ours, with an instant stub.

    python -m bench.proxy_cost                  the gates, under 4 minutes
    python -m bench.proxy_cost --users 256      the same with a row more for so many users
    python -m bench.proxy_cost --soak           memory over 100,000 requests, a fifth of them left
    python -m bench.proxy_cost --soak --requests 1000000

N = 4: each request is 4 claims, 4 completions and 4 ends. All is in one run on this machine, each
part in a process of its own. Ratios gate; milliseconds are printed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts
from bench.proxy_cost.run import Figures, Stub, Subject, child, measure, our_proxy, stand_in
from bench.proxy_cost.soak import KEEP_BYTES, soak

OVER_FLOOR = 5.0
UNDER_NAIVE = 45.0
SLOWEST = 560.0
"""Maximum p99 in milliseconds with completions of half a second."""
SECONDS = 4.0
ROUNDS = 3
"""Number of alternating rounds of floor and ours at 64 users; the median counts."""
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
    cost = statistics.median_low(one.cpu for one in rounds)
    return next(one for one in rounds if one.cpu == cost)


def instant(verdicts: Verdicts, stub: Stub, subjects: tuple[Subject, ...], users: int) -> None:
    """Measure the CPU per request when the server answers at once."""
    naive, floor, ours = subjects
    print(f"\nThe server answers at once\n{_HEAD}")
    for count in (1, 16, 64):
        show("naive", slow := measure(naive, stub, count, requests=max(16, count)))
    with stand_in("naive", stub, "--one-context") as light:
        show("naive*", measure(light, stub, 64, requests=256))
    for count in dict.fromkeys((1, 16, users)):
        for subject in (floor, ours):
            if count != 64:
                show(subject.name, measure(subject, stub, count, seconds=SECONDS))
    rounds: dict[str, list[Figures]] = {"floor": [], "ours": []}
    for _ in range(ROUNDS):
        for subject in (floor, ours):
            figures = measure(subject, stub, 64, seconds=SECONDS)
            show(subject.name, figures)
            rounds[subject.name].append(figures)
    least, mine = middle(rounds["floor"]), middle(rounds["ours"])
    verdicts.at_most("proxy_cost_over_floor", mine.cpu / least.cpu, OVER_FLOOR, "x")
    verdicts.at_least("proxy_cost_under_naive", slow.cpu / mine.cpu, UNDER_NAIVE, "x")
    verdicts.at_most("proxy_errors", sum(one.errors for one in rounds["ours"]), 0, "requests")
    print("naive*: one TLS context for all candidates, not one for each")
    lost = sum(one.unaccounted for one in rounds["ours"])
    verdicts.at_most("proxy_episodes_unaccounted", lost, 0, "episodes")


def slow(verdicts: Verdicts, stub: Stub, subjects: tuple[Subject, ...], users: int) -> None:
    """Measure the latency of users when a completion takes time."""
    naive, floor, ours = subjects
    print(f"\nA completion takes {SLOW:g} ms\n{_HEAD}")
    stub.delay(SLOW)
    show("naive", measure(naive, stub, 64, requests=64))
    for count in dict.fromkeys((64, users)):
        show("floor", measure(floor, stub, count, seconds=SECONDS))
        show("ours", figures := measure(ours, stub, count, seconds=2 * SECONDS))
        if count == 64:
            verdicts.at_most("proxy_p99_slow_server", figures.p99, SLOWEST, "ms")
    stub.delay(0)


def streamed(stub: Stub, ours: Subject) -> None:
    """Measure the same request with `stream: true`; only printed."""
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
