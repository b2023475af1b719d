"""Nine players: werewolves and seer are one trained policy, a static model plays the others.

    python -m examples.werewolves

Without an address an embedded engine and a scripted model are started; a scripted model that dies
is started again.
"""

import argparse
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean
from subprocess import Popen

from ajet_swarm import SwarmClient, TrainingFinished
from ajet_swarm.common.errors import AjetError
from examples.stage import Stage, error_text, say
from examples.swarming import add_pace, engine_of, is_embedded, pace_of, until
from examples.werewolves.agents import Model
from examples.werewolves.roll import Batch, Roll
from examples.werewolves.settings import Settings, load

HERE = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    args = _parsed(argv)
    logging.getLogger("ajet_swarm.runs.retry").setLevel(
        logging.ERROR
    )  # a game that is played again needs no line
    try:
        config = args.config or _config(args.swarm_url or os.environ.get("AJET_SWARM_URL", ""))
        settings = load(config, args.updates, args.train, args.idle)
        pace = pace_of(args, settings.idle, args.swarm_url)
        idle = args.idle or max(settings.idle, pace.idle)
        settings = replace(settings, idle=idle, patience=max(pace.patience, 2 * idle))
        with Stage(args.keep) as stage:
            return _run(stage, settings, args)
    except KeyboardInterrupt:
        return 130
    except (AjetError, ExceptionGroup) as error:
        sys.stderr.write(f"werewolves: {error_text(error)}\n")
        return 1


def _config(url: str) -> Path:
    """Return the file for a server; the small form is only for the embedded engine.

    Args:
        url: Of the server that was named; empty when the example starts its own engine.
    """
    return HERE / ("small.yaml" if not url or is_embedded(url.rstrip("/")) else "werewolves.yaml")


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="python -m examples.werewolves")
    add = parser.add_argument
    add("--config", type=Path, metavar="YAML", help="else small.yaml; werewolves.yaml on AgentJet")
    add("--updates", type=int, metavar="N", help="total_training_steps")
    add("--train", default="", metavar="ROLES", help="trainable_targets: werewolf,seer")
    add_pace(parser)
    add("--swarm-url", default="", metavar="URL", help="else AJET_SWARM_URL, else embedded")
    add("--static-url", default=env("STATIC_URL", ""), metavar="URL", help="else scripted")
    add("--static-model", default=env("STATIC_MODEL", "scripted"), metavar="NAME")
    add("--keep", type=Path, metavar="DIR", help="keep the processes' folder, with logs, here")
    return parser.parse_args(argv)


def _run(stage: Stage, settings: Settings, args: argparse.Namespace) -> int:
    url = engine_of(stage, swarm_url=args.swarm_url)
    with scripted(stage, args.static_url) as address, SwarmClient(url) as client:
        key = os.environ.get("STATIC_API_KEY", "none")
        tokens = max(settings.answer_tokens, 64)  # the window of another model
        static = Model(address, key, args.static_model, tokens, settings.static_limits)
        say(f"{', '.join(settings.trainable)} at {url}; the others: {static.name} at {address}")
        done = []
        try:
            client.auto_sync_train_config_and_start_engine(settings.job, timeout=settings.patience)
            for batch in Roll(client, settings, static).batches():
                done.append(batch)
                say(f"step {batch.step}: {_summary(batch, settings)}")
                for error in batch.errors[:1]:
                    say(f"  {len(batch.errors)} games given up, the first: {error_text(error)}")
        except TrainingFinished as finished:
            say(str(finished))
        until("nothing is claimed", settings.idle + 30, lambda: not _held(client))
    if done:
        _report(done, settings)
    return 0


def _held(client: SwarmClient) -> int:
    """Return the number of our episodes; other clients may continue."""
    records = client.get_episode_buffer()
    return sum(one.claimed and one.client_uuid == client.client_uuid for one in records)


@contextmanager
def scripted(stage: Stage, url: str = "") -> Iterator[str]:
    """Yield the static model's address: the named one, else that of a scripted server."""
    if url:
        yield url
        return
    command = [sys.executable, "-m", "examples.werewolves.static", "--with-parent", "--port"]
    child = stage.start("static", *command, "0")
    address = stage.wait("static", child, lambda: stage.log("static").partition("\n")[0])
    port = address.rpartition(":")[2].removesuffix("/v1")
    over = threading.Event()

    def keep(child: Popen[bytes]) -> None:
        while not over.wait(0.2):
            if child.poll() is not None:
                say("the scripted model's server died: it is started again")
                child = stage.start("static", *command, port)

    keeper = threading.Thread(target=keep, args=(child,), name="keeper")
    keeper.start()
    try:
        yield address
    finally:
        over.set()
        keeper.join()


def _summary(batch: Batch, settings: Settings) -> str:
    won = "  ".join(f"{side} win {batch.won(side):.2f}" for side in settings.sides)
    read = "  ".join(f"{role} {batch.read(role):.2f}" for role in settings.trainable)
    days = mean(one.days for one in batch.games) if batch.games else 0
    return f"{won} of {len(batch.games)} games, {days:.1f} days; moves read: {read}"


def _report(done: Sequence[Batch], settings: Settings) -> None:
    shown = max(1, len(done) // 4)
    first, last = done[:shown], done[-shown:]
    say(f"\n| {len(done)} batches | first {shown} | last {shown} |\n|---|---|---|")
    for side in settings.sides:
        low, high = (mean(one.won(side) for one in part) for part in (first, last))
        say(f"| {side} win | {low:.2f} | {high:.2f} |")
    for role in settings.trainable:
        low, high = (mean(one.read(role) for one in part) for part in (first, last))
        say(f"| moves read, {role} | {low:.2f} | {high:.2f} |")
    say("claims left 0")


if __name__ == "__main__":
    sys.exit(main())
