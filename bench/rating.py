"""Sixty groups rated in ten minutes at a person's pace: 80x24, a real terminal, no mouse.

    .venv/bin/python -m bench.rating [GROUPS] [--fast]
    .venv/bin/python -m bench.rating robot [--groups 60] [--seconds 3]

They are rated twice: with one key a vote, and with `rating.confirm: enter`. The rater of
`tests/support/pty/rating_run.py` reads the screen of a console on a pseudo terminal, thinks for 4.5
to 8.5 seconds a group (`--fast`: 0.3 to 0.4) and presses a key every 0.2 to 0.45 seconds: bests,
rankings, scores, ties, all bad, a vote taken back now and then. The server is a scripted one
that notes which answer got which reward; that is compared, group by group, with what the keys
meant. Groups that come back for a second vote are rated again and must send nothing.

The robot votes through the control API, in *answer first* with the embedded engine, while a user
asks each second and the proxy is killed twice, right after it has acknowledged a vote. It reads
longer than a batch takes to fill, so most of its votes are late. Then the same users come in mode
off, with the same kills. A user who asks while the proxy is down counts as refused.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.bars import Verdicts
from core.state import Group, State
from tests.support.pty.rating_run import FAST, HUMAN, Outcome, rating_run
from tests.support.stack import Stack, rewards_of_best, until

GROUPS = 60
LIMIT = 600.0
NEXT_GROUP = 0.06
"""Seconds from the key of a vote to the next group, 95 % of them."""
ROBOT_LIMIT = 6.0
"""Seconds a group in which the robot is to rate them."""
LONGER = 1.0
"""Seconds by which users may wait longer than in mode off."""
PATIENCE = 120.0
"""Seconds in which a group comes to the robot."""


def tell(outcome: Outcome) -> None:
    """Compare the intended votes with the received ones, group by group."""
    differing = set(outcome.differing())
    for group, meant in sorted(outcome.expected.items()):
        got = outcome.received.get(group, {})
        shown = " ".join(f"{got[index]:.2f}" for index in sorted(got)) or "nothing"
        expected = (
            "nothing" if meant is None else " ".join(f"{meant[at]:.2f}" for at in sorted(meant))
        )
        sign = "DIFFERS" if group in differing else "same"
        print(f"group {group:3}  meant {expected:20}  server got {shown:20}  {sign}")
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(outcome.kinds.items()))
    print(f"\n{kinds}; {outcome.undone} taken back first, {outcome.second_votes} second votes")


def judge(verdicts: Verdicts, confirm: str, outcome: Outcome, count: int) -> None:
    """Compare the figures of one setting of `rating.confirm` with their bars."""
    verdicts.at_least(f"groups_rated_{confirm}", len(outcome.expected), count, "groups")
    verdicts.at_most(f"seconds_{confirm}", outcome.seconds, LIMIT * count / GROUPS, "s")
    verdicts.at_most(f"groups_that_differ_{confirm}", len(outcome.differing()), 0, "groups")
    verdicts.at_most(f"rewards_sent_twice_{confirm}", outcome.duplicates, 0, "rewards")
    verdicts.info(f"keys_per_vote_{confirm}", statistics.fmean(outcome.typed), "keys")
    verdicts.at_most(f"key_to_next_group_p95_{confirm}", outcome.slow_move, NEXT_GROUP, "s")
    per_minute = 60 * len(outcome.expected) / outcome.seconds
    verdicts.info(f"votes_per_minute_{confirm}", per_minute, "votes")


# --- the robot -----------------------------------------------------------------------------------


@dataclass
class Visits:
    """What one run came to; with `like`, the users and kills of that run without a robot."""

    like: "Visits | None" = None
    asked: int = 0
    """Users so far; one asks each second."""
    waits: list[float] = field(default_factory=list)
    """Seconds to the answer of each user who got one."""
    kills: list[int] = field(default_factory=list)
    """Users before each kill of the proxy."""
    votes: dict[str, int] = field(default_factory=dict)
    """Acknowledged vote on each group: the index of the best answer."""
    refused: int = 0
    seconds: float = 0.0
    state: State = field(default_factory=State)
    """By the journal, at the end."""

    def run(self, root: Path, groups: int, seconds: float) -> None:
        """Run engine and proxy with these users, and the robot or the kills of `like`."""
        like, over = self.like, threading.Event()
        with Stack(root, forks=False) as stack, ThreadPoolExecutor(100) as pool:
            stack.environment["AJET_CONSOLE__RATING__MODE"] = "off" if like else "answer_first"
            stack.engine()
            url = stack.proxy().url
            assert stack.run("engine", "start").returncode == 0
            stack.rolling()
            pool.submit(self._send_users, pool, url, over)
            try:
                if like is None:
                    self._rate(stack, url, groups, seconds)
                else:
                    for users in like.kills:
                        self._await_users(users)
                        self._kill(stack, url)
                    self._await_users(like.asked)
            finally:
                over.set()
            pool.shutdown()
            until("no vote is held", lambda: self.votes.keys().isdisjoint(_open(stack)), PATIENCE)
            stack.kill("proxy")
            self.state = stack.journal_state()

    def _send_users(self, pool: ThreadPoolExecutor, url: str, over: threading.Event) -> None:
        began, most = time.monotonic(), self.like.asked if self.like else sys.maxsize
        while not over.wait(max(0.0, began + self.asked - time.monotonic())) and self.asked < most:
            self.asked += 1
            pool.submit(self._ask, url, self.asked)

    def _await_users(self, users: int) -> None:
        until(f"{users} users", lambda: self.asked >= users, 10 * PATIENCE)

    def _ask(self, url: str, number: int) -> None:
        text = f"What is {number} + 4?"
        body = {"model": "m", "max_tokens": 24, "messages": [{"role": "user", "content": text}]}
        began = time.monotonic()
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=900, trust_env=False)
        if answer.status_code == 200:
            self.waits.append(time.monotonic() - began)

    def _kill(self, stack: Stack, url: str) -> None:
        self.kills.append(self.asked)
        stack.kill("proxy")
        stack.start("proxy", "--port", str(httpx.URL(url).port))

    def _rate(self, stack: Stack, url: str, groups: int, seconds: float) -> None:
        """Read a group, vote for its last answer, until there are enough votes."""
        headers = {"authorization": f"Bearer {stack.home.token()}"}
        began, tried = time.monotonic(), set[str]()
        while len(self.votes) < groups:
            group = until("a group waits", lambda: _next(stack.state(), tried), PATIENCE, 0.05)
            tried.add(group.group_id)
            time.sleep(seconds)
            best = group.answered[-1]
            vote = {"group_id": group.group_id, "rating": "best", "order": [best], "rater": "robot"}
            command = f"{url}/control/commands/group.rate"
            answer = httpx.post(command, json=vote, headers=headers, timeout=60, trust_env=False)
            if answer.status_code != 200:
                self.refused += 1
                continue
            self.votes[group.group_id] = best
            if len(self.votes) in (groups // 3, 2 * groups // 3):
                self._kill(stack, url)
        self.seconds = time.monotonic() - began


def _next(state: State, tried: set[str]) -> Group | None:
    return next((group for group in state.waiting() if group.group_id not in tried), None)


def _open(stack: Stack) -> list[str]:
    return [group.group_id for group in stack.state().open_groups()]


def _fate(state: State, name: str, best: int) -> str:
    """Return whether a vote was sent, is late (in the inbox), or is lost."""
    if (item := state.inbox.get(name)) is not None:
        return "late" if [vote.order for vote in item.votes] == [(best,)] else "lost"
    group = state.groups[name]
    pairs = zip(group.candidates, rewards_of_best(group, best), strict=True)
    as_voted = all(slot.reward in (None, reward) for slot, reward in pairs)
    return "sent" if group.source == "human" and not group.lost and as_voted else "lost"


def robot(words: Sequence[str]) -> None:
    """Let the robot rate, then compare the waits of the users with those in mode off."""
    parser = argparse.ArgumentParser(prog="bench.rating robot")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--seconds", type=float, default=3.0)
    options, verdicts = parser.parse_args(words), Verdicts()
    rated = Visits()
    off = Visits(like=rated)
    for name, visits in (("answer_first", rated), ("off", off)):
        with tempfile.TemporaryDirectory() as folder:
            visits.run(Path(folder) / "home", options.groups, options.seconds)
        verdicts.info(f"users_answered_{name}", len(visits.waits), f"of {visits.asked} users")
    fates = Counter(_fate(rated.state, *vote) for vote in rated.votes.items())
    waits = [sorted(visits.waits) for visits in (rated, off)]
    verdicts.at_least("votes", len(rated.votes), options.groups, "votes")
    verdicts.at_most("seconds", rated.seconds, ROBOT_LIMIT * options.groups, "s")
    counts = {"refused": rated.refused, "sent": fates["sent"], "in_the_inbox": fates["late"]}
    for name, count in counts.items():
        verdicts.info(f"votes_{name}", count, "votes")
    verdicts.at_least("kills", len(rated.kills), 2, "kills")
    verdicts.at_most("votes_lost", fates["lost"], 0, "votes")
    for name, share in (("p99", 0.99), ("longest", 1.0)):
        here, there = (times[int(share * (len(times) - 1))] for times in waits)
        verdicts.info(f"wait_{name}_off", there, "s")
        verdicts.at_most(f"wait_{name}_longer", here - there, LONGER, "s")
    verdicts.close()


def main() -> None:
    """Rate and compare."""
    if sys.argv[1:2] == ["robot"]:
        robot(sys.argv[2:])
    numbers = [word for word in sys.argv[1:] if word != "--fast"]
    count = int(numbers[0]) if numbers else GROUPS
    pace = FAST if "--fast" in sys.argv else HUMAN
    verdicts = Verdicts()
    for confirm in ("none", "enter"):
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(rating_run(Path(folder) / "home", count, pace, confirm=confirm))
        print(f"rating.confirm: {confirm}")
        tell(outcome)
        judge(verdicts, confirm, outcome, count)
    verdicts.close()


if __name__ == "__main__":
    main()
