"""Our proxy beside gateways and routers that only forward, before one instant upstream.

    python -m bench.peers [--quick] [--only NAME ...]

LiteLLM and Portkey are gateways, vllm-router and sglang-router are routers in Rust; ours forwards
in observe mode (fan-out 1, journal on), and answers with the best of four candidates beside it.
A bare forwarder on our HTTP stack shows what that alone costs. Prompts are unique. Everything is
measured in this run, in turns; the bars are ratios and the latency of one user. CPU is that of all
processes of a subject, per request.

The peers are installed below `.venv-peers` from pinned hashes (`bench.peers.install`).
"""

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.bars import Verdicts
from bench.peers.subjects import BARE, PEERS, Running, ours, peer
from bench.proxy_cost.run import Figures, Stub, child, load, measure

USERS = (1, 4, 16, 64)
BOUNDS = (5.0, 10.0, 50.0, 100.0)
"""Bounds of p99 in milliseconds for which the throughput is reported."""
SWEEP = (1, 2, 4, 8, 16, 32, 64)
OBSERVE, SWARM = "ours, observe", "ours, N = 4"


@dataclass
class Result:
    """All figures of one subject."""

    whole: dict[int, list[Figures]] = field(default_factory=dict)
    """Number of users -> rounds."""
    streamed: dict[int, list[Figures]] = field(default_factory=dict)
    idle: float = 0.0
    loaded: float = 0.0
    after: float = 0.0
    """MB of memory before the load, under it, and at the end."""

    def middle(self, users: int, name: str, *, stream: bool = False) -> float:
        """Return the median of a figure over the rounds."""
        rounds = (self.streamed if stream else self.whole)[users]
        return statistics.median(float(getattr(one, name)) for one in rounds)

    def within(self, bound: float) -> float:
        """Return the best throughput whose p99 is within a bound; 0 for none."""
        rates = [
            self.middle(users, "rate") for users in self.whole if self.middle(users, "p99") <= bound
        ]
        return max(rates, default=0.0)


def measure_one(running: Running, stub: Stub, result: Result, seconds: float) -> None:
    """Measure one round of a subject."""
    headers = [part for header in running.headers for part in ("--header", header)]
    subject = running.subject
    if not result.idle:
        result.idle = subject.resident()
    for users in SWEEP:
        figures = measure(subject, stub, users, *headers, seconds=seconds)
        result.whole.setdefault(users, []).append(figures)
        result.loaded = max(result.loaded, subject.resident())
    for users in (1, 64):
        figures = measure(subject, stub, users, "--stream", *headers, seconds=seconds)
        result.streamed.setdefault(users, []).append(figures)
    result.after = subject.resident()
    errors = sum(one.errors for rounds in result.whole.values() for one in rounds)
    print(f"{subject.name}: {errors} errors", flush=True)


@contextlib.contextmanager
def started(name: str, upstream: int, work: Path) -> Iterator[Running]:
    """Start a subject by name."""
    folder = work / name.replace(" ", "-").replace(",", "").replace("=", "")
    folder.mkdir(exist_ok=True)
    if name in (OBSERVE, SWARM):
        with ours(upstream, folder, observe=name == OBSERVE) as running:
            yield running
    else:
        with peer(name, upstream, folder) as running:
            yield running


def direct(stub: Stub, seconds: float) -> dict[int, tuple[float, float]]:
    """Return p50 and throughput of the upstream itself, by number of users."""
    result = {}
    for users in USERS:
        with load(stub.port, users) as crowd:
            crowd.round(requests=100)
            figures = crowd.round(seconds=seconds)
        result[users] = figures["p50"], figures["requests"] / figures["seconds"]
    return result


def show(results: Mapping[str, Result], plain: Mapping[int, tuple[float, float]]) -> None:
    """Print the tables."""
    rates = " / ".join(f"{plain[users][1]:.0f}" for users in USERS)
    print(f"\nThe upstream itself: {rates} requests/s with {' / '.join(map(str, USERS))} users\n")
    print("| subject | CPU ms a request | added p50 ms | requests/s | streamed CPU, requests/s |")
    print("|---|---|---|---|---|")
    for name, one in results.items():
        added = " / ".join(f"{one.middle(u, 'p50') - plain[u][0]:.1f}" for u in USERS)
        cpu = " / ".join(f"{one.middle(u, 'cpu'):.2f}" for u in USERS)
        rate = " / ".join(f"{one.middle(u, 'rate'):.0f}" for u in USERS)
        stream = (
            f"{one.middle(64, 'cpu', stream=True):.2f}, {one.middle(64, 'rate', stream=True):.0f}"
        )
        print(f"| {name} | {cpu} | {added} | {rate} | {stream} |")
    bounds = " / ".join(f"{bound:g}" for bound in BOUNDS)
    rates = f"requests/s with p99 within {bounds} ms"
    print(f"\n| subject | {rates} | p99 ms, 64 users | MB idle / loaded / after |")
    print("|---|---|---|---|")
    for name, one in results.items():
        within = " / ".join(f"{one.within(bound):.0f}" for bound in BOUNDS)
        memory = f"{one.idle:.0f} / {one.loaded:.0f} / {one.after:.0f}"
        print(f"| {name} | {within} | {one.middle(64, 'p99'):.0f} | {memory} |")


def judge(results: Mapping[str, Result], verdicts: Verdicts) -> None:
    """Compare the figures with the bars."""
    if OBSERVE in results:
        own = results[OBSERVE]
        if "portkey" in results:
            other = results["portkey"]
            ratio = own.middle(1, "p50") / other.middle(1, "p50")
            verdicts.at_most("one_user_p50_of_portkeys", ratio, 1.0, "x")
            ratio = own.middle(16, "rate") / other.middle(16, "rate")
            verdicts.at_least("throughput_16_users_of_portkeys", ratio, 1.0, "x")
            ratio = own.middle(64, "cpu") / other.middle(64, "cpu")
            verdicts.at_most("cpu_of_portkeys", ratio, 0.5, "x")
        if "litellm" in results:
            ratio = own.middle(64, "cpu") / results["litellm"].middle(64, "cpu")
            verdicts.at_most("cpu_of_litellms", ratio, 0.1, "x")
        if BARE in results:
            ratio = own.middle(64, "cpu") / results[BARE].middle(64, "cpu")
            verdicts.info("cpu_of_a_bare_forwarders", ratio, "x")
    if SWARM in results:
        own = results[SWARM]
        verdicts.at_most("n4_one_user_cpu", own.middle(1, "cpu"), 1.5, "ms")
        slowest = max(one.p99 for one in own.whole[64])
        verdicts.at_most("n4_p99_64_users_slowest_round", slowest, 120.0, "ms")


def main() -> None:
    """Measure all in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=(*PEERS, OBSERVE, SWARM))
    args = parser.parse_args()
    names = args.only or (*PEERS, OBSERVE, SWARM)
    rounds, seconds = (1, 1.5) if args.quick else (3, 4.0)
    results = {name: Result() for name in names}
    verdicts = Verdicts()
    with (
        tempfile.TemporaryDirectory() as folder,
        child("bench.peers.stub") as (_, port),
        contextlib.ExitStack() as stack,
    ):
        stub, work = Stub(port), Path(folder)
        plain = direct(stub, seconds)
        subjects = {name: stack.enter_context(started(name, port, work)) for name in names}
        for number in range(rounds):
            order = names if number % 2 == 0 else tuple(reversed(names))
            for name in order:
                measure_one(subjects[name], stub, results[name], seconds)
        show(results, plain)
    judge(results, verdicts)
    verdicts.close()


if __name__ == "__main__":
    main()
