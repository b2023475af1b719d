"""Nine players: werewolves and seer are one trained policy, a static model plays the others.

    python -m examples.werewolves

Without an address an embedded engine is started, and a scripted model plays the others.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from ajet_swarm import OpenaiBaseUrlAndApiKey, SwarmClient, TrainingFinished
from examples.ask import Asker
from examples.stage import Stage, error_text, on_stage, say
from examples.swarming import engine_of, flags, is_embedded, pace_of, until
from examples.werewolves.agents import Model
from examples.werewolves.roll import Batch, Roll
from examples.werewolves.settings import Settings, load

HERE = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    """Run the example; return the exit code."""
    env = os.environ.get
    parser = flags("werewolves", None)
    add = parser.add_argument
    add("--config", type=Path, metavar="YAML", help="else small.yaml; werewolves.yaml on AgentJet")
    add("--train", default="", metavar="ROLES", help="trainable_targets: werewolf,seer")
    add("--swarm-url", default="", metavar="URL", help="else AJET_SWARM_URL, else embedded")
    add("--static-url", default=env("STATIC_URL", ""), metavar="URL", help="else scripted")
    add("--static-model", default=env("STATIC_MODEL", "scripted"), metavar="NAME")
    args = parser.parse_args(argv)
    # a game that is played again needs no line
    logging.getLogger("ajet_swarm.runs.executors").setLevel(logging.ERROR)
    return on_stage("werewolves", args.keep, lambda stage: _run(stage, args))


def _config(url: str) -> Path:
    """Return the file for a server; the small form is only for the embedded engine.

    Args:
        url: Of the server that was named; empty when the example starts its own engine.
    """
    return HERE / ("small.yaml" if not url or is_embedded(url.rstrip("/")) else "werewolves.yaml")


def _run(stage: Stage, args: argparse.Namespace) -> None:
    config = args.config or _config(args.swarm_url or os.environ.get("AJET_SWARM_URL", ""))
    settings = load(config, args.updates, args.train, args.idle)
    pace = pace_of(args, settings.idle, args.swarm_url)
    idle = args.idle or max(settings.idle, pace.idle)
    settings = replace(settings, idle=idle, patience=max(pace.patience, 2 * idle))
    url, rules = engine_of(stage, swarm_url=args.swarm_url), settings.own
    tokens = max(rules.answer_tokens, 64)  # the window of another model
    key, address = os.environ.get("STATIC_API_KEY", "none"), args.static_url.rstrip("/")
    api = OpenaiBaseUrlAndApiKey(address, key, model=args.static_model) if address else None
    static = Model(api, tokens, rules.static_prompt)
    roles = ", ".join(rules.trainable_targets)
    say(f"{roles} at {url}; the others: {address or 'scripted'}")
    with SwarmClient(url) as client, Asker(60.0) as asker:
        try:
            client.auto_sync_train_config_and_start_engine(settings.job, timeout=settings.patience)
            for batch in Roll(client, settings, static, asker).batches():
                say(f"step {batch.step}: {_summary(batch, settings)}")
                for error in batch.errors[:1]:
                    say(f"  {len(batch.errors)} games given up, the first: {error_text(error)}")
        except TrainingFinished as finished:
            say(str(finished))
        until("nothing is claimed", settings.idle + 30, lambda: not _held(client))
    say("claims left 0")


def _held(client: SwarmClient) -> int:
    """Return the number of our episodes; other clients may continue."""
    records = client.get_episode_buffer()
    return sum(record.claimed and record.client_uuid == client.client_uuid for record in records)


def _summary(batch: Batch, settings: Settings) -> str:
    won = "  ".join(f"{side} win {batch.won(side):.2f}" for side in settings.sides)
    read = "  ".join(f"{role} {batch.read(role):.2f}" for role in settings.own.trainable_targets)
    days = mean(game.days for game in batch.games) if batch.games else 0
    return f"{won} of {len(batch.games)} games, {days:.1f} days; moves read: {read}"


if __name__ == "__main__":
    sys.exit(main())
