"""Make `home_d3182bb`: a home that commit d3182bb wrote, by running its engine and its proxy.

Run it with the code of that commit, from a folder outside the checkout:

    git archive d3182bb | tar x -C OLD
    PYTHONPATH=OLD python tests/data/make_home_d3182bb.py tests/data

What the old code reads from the home is written beside it, as `expected.json`. The policy's own
checkpoints have 11 MB each: they are replaced by small ones that the old code writes, and of one in
full size, made of known numbers, the digest is noted.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

CONFIG = """\
# settings of the fixture
swarm_url: embedded
proxy:
  port: 0
  answer_budget: 45
  straggler: cut
  cors_origins: https://chat.example, https://other.example
rating:
  window: 0
  discard_timeout: 120
  tags: [wrong, verbose, style]
rewards:
  retries: 1
engine:
  port: 0
mock:
  concurrency: 2
console:
  theme: light
  rater: fixture
  keys:
    group.abort: ctrl+d
  reduced_motion: yes
"""
REWARDS = """\
# rewards of the fixture
parts:
  degeneration: {kind: repetition, gate: true}
  finished:     {gate: true}
  length:       {weight: 0.3, least: 5, most: 80}   # words
  relevance:    {weight: 0.3}
  diversity:    {weight: 0.4}
  reference:    {share: 0.6}
recent: 20
"""
QUESTIONS = [
    {"id": "q0", "query": "What is the capital of France?", "reference": "Paris"},
    {"id": "q1", "query": "What do bees make?", "reference": "honey"},
]


def cli(home: Path, *args: str) -> str:
    """Run one command of the old program; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "console", *args],
        env=os.environ | {"AJET_CONSOLE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    if done.returncode:
        raise SystemExit(f"{args}: {done.returncode} {done.stdout} {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def processes(home: Path) -> Iterator[None]:
    """The engine and the proxy of the old program, until the context ends."""
    started = []
    for role in ("engine", "proxy"):
        command = [sys.executable, "-m", "console", role, "--home", str(home)]
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdout=quiet, stderr=quiet))
        until = time.monotonic() + 60
        while not (home / "run" / f"{role}.json").exists() and time.monotonic() < until:
            time.sleep(0.2)
    try:
        cli(home, "engine-start")
        yield
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def groups(home: Path) -> list[str]:
    """Ids of the groups in the journal, newest first."""
    with contextlib.closing(sqlite3.connect(home / "journal.db")) as db:
        return [row[0] for row in db.execute("select id from groups order by opened_seq desc")]


def run(home: Path) -> None:
    """Two runs: questions, a vote, a mark, a note, another weight, a job, a restart."""
    questions = str(home / "datasets" / "questions.jsonl")
    with processes(home):
        cli(home, "mock", questions)
        cli(home, "rewards-weight", "length", "0.5")
        cli(home, "mode", "answer_first")
        cli(home, "mock", questions, "--restart")
        one, two, three, *_ = groups(home)
        cli(home, "rate", one, "2", "1", "3", "4", "--note", "clearer", "--tag", "verbose")
        cli(home, "edit", two, "1", "--text", "A better answer.")
        cli(home, "accept-all")
        cli(home, "mode", "off")
        cli(home, "mark", two)
        cli(home, "note", three, "--text", "look at this again")
        cli(home, "engine-job", "--preset", "hand")
        cli(home, "checkpoints", "save", "good")
    with processes(home):
        cli(home, "mock", questions, "--restart")


def shrink(home: Path) -> None:
    """Leave only what a copy of the home needs; put small checkpoints in place of the policy's."""
    from engine.checkpoint_store import CheckpointStore
    from engine.weights import shipped

    from engine import checkpoints

    for folder in ("run", "logs", "engine"):
        shutil.rmtree(home / folder, ignore_errors=True)
    store = CheckpointStore(home / "engine")
    for step, name in enumerate(("good", "latest", "latest"), 1):  # the second becomes `previous`
        values = np.arange(3 * 8, dtype="<f4").reshape(3, 8) + step
        header = {"base": shipped().digest, "step": step, "t": step, "size": 8}
        content = checkpoints.parts(header, [row.data.cast("B") for row in values])
        store.write(name, content, "a small state")
    store.close()
    (home / "engine" / "lock").unlink()
    with contextlib.closing(sqlite3.connect(home / "journal.db")) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        db.execute("pragma journal_mode=delete")
        db.execute("vacuum")
        db.execute("pragma journal_mode=wal")
    for end in ("-wal", "-shm"):
        (home / f"journal.db{end}").unlink(missing_ok=True)


def expected(home: Path) -> dict[str, object]:
    """What the old code reads from the home, and the digest of a checkpoint of full size."""
    from core.home import Home
    from engine.checkpoints import listed
    from engine.optimizer import Adam
    from engine.weights import State, WeightStore, shipped

    from core.journal import Journal
    from core.settings import load

    journal = Journal(home / "journal.db")
    state, events = journal.load_state(), journal.events(0, 100_000)
    journal.close()
    base = shipped()
    size = base.params.flat.size
    adam = Adam(size)
    adam.m[...], adam.v[...], adam.t = np.arange(size) / size, 0.5, 7
    with tempfile.TemporaryDirectory() as folder:
        store = WeightStore(Path(folder))
        store.save(State(base.params.copy(), adam, 7), base)
        body = (Path(folder) / "latest.ckpt").read_bytes()[-12 * size :]  # the header has the time
        store.close()
    return {
        "state": msgspec.to_builtins(state),
        "events": len(events),
        "settings": msgspec.to_builtins(load(home / "config.yaml", {}, {})),
        "token": Home(home).token(),
        "checkpoints": [[one.name, one.step] for one in listed(home / "engine")],
        "full_checkpoint": hashlib.sha256(body).hexdigest(),
    }


def main() -> None:
    """Write the folder."""
    target = Path(sys.argv[1]) / "home_d3182bb"
    home = Path("/tmp/home_d3182bb")  # in the journal
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(CONFIG)
    (home / "rewards.yaml").write_text(REWARDS)
    (home / "datasets").mkdir()
    lines = [json.dumps(one) + "\n" for one in QUESTIONS]
    (home / "datasets" / "questions.jsonl").write_text("".join(lines))
    run(home)
    shrink(home)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(home, target)
    (home / "run").mkdir()
    facts = expected(home)
    (target / "expected.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(facts), indent=0)
    )
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
