"""The commands of the command line, in the groups of `--help`, with the module of each.

A command's module is imported when the command is parsed. Its `add(parser)` adds the arguments and
sets `handler`. Most commands of `core.commands` take their arguments from that registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.commands import COMMANDS

_SPECIAL_NAMES: Mapping[str, str] = {
    "mock.start": "mock",
    "rating.mode": "mode",
    "rating.accept_all": "accept-all",
    "rating.abort_all": "abort-all",
    "engine.save": "checkpoints save",
    "engine.restore": "checkpoints restore",
    "engine.prune": "checkpoints prune",
    "journal.prune": "journal prune",
    "run.name": "runs name",
    "run.note": "runs note",
    "run.pin": "runs pin",
    "proxy.drain": "drain",
    "engine.try": "try",
    "engine.try_stop": "try-stop",
}
"""Registry commands whose command-line name does not follow the rule of `words_of`."""


def words_of(command: str) -> str:
    """Return the command-line name of a registry command.

    `group.VERB` becomes VERB, any other command AREA-VERB; a few have special names.
    """
    area, _, verb = command.partition(".")
    plain = verb if area == "group" else f"{area}-{verb}"
    return _SPECIAL_NAMES.get(command, plain.replace("_", "-"))


@dataclass(frozen=True, slots=True)
class Verb:
    """One command of the command line."""

    name: str
    target: str
    """`module:function`; the function adds the arguments to the command's parser."""
    about: str
    """One sentence without a full stop, for the list of commands and the command's own help."""
    example: str = ""
    """Arguments of the example."""
    command: str = ""
    """The command of `core.commands` that it sends; empty when it sends none."""


def _of(command: str, example: str = "", target: str = "console.cli.commands:add") -> Verb:
    """Return the verb that sends a registry command."""
    return Verb(words_of(command), target, COMMANDS[command].help, example, command)


GROUPS: Mapping[str, Sequence[Verb]] = {
    "processes": (
        Verb(
            "setup",
            "console.cli.setup.command:add",
            "Ask for application, dataset, rewards, engine and rating; write config.yaml; send one "
            "request",
            "rating=hold",
        ),
        Verb(
            "engine",
            "console.cli.processes:add_engine",
            "Run the embedded engine: a swarm server that trains a small policy on this machine's "
            "CPU, or a model of your choice on its GPU",
            "--port 10086",
        ),
        Verb(
            "proxy",
            "console.cli.processes:add_proxy",
            "Run the fake vLLM without a console",
            "--swarm-url http://gpu-box:10086 --port 8000",
        ),
        Verb(
            "mock",
            "console.cli.mock:add",
            "Replay a dataset through the application, as a user would",
            "questions.jsonl --concurrency 3 --passes 2 --seed 7",
        ),
        _of("mock.pause"),
        _of("mock.resume"),
        _of("mock.stop"),
        _of("proxy.drain"),
        Verb(
            "web",
            "console.cli.system.web:add",
            "Serve the console to browsers, by links that expire, for raters and viewers",
            "--link rater --name anna --expires 8h",
        ),
        Verb(
            "mcp",
            "console.cli.system.mcp:add",
            "Serve agents by MCP: tools that read the state, and with --role act send commands",
            "--role act",
        ),
        Verb(
            "service",
            "console.cli.system.service:add",
            "Print a systemd user unit that runs the proxy or the embedded engine",
            "proxy --swarm-url http://gpu-box:10086 --port 8000",
        ),
        _of("proxy.restart", "--yes", "console.cli.restart:add"),
        _of("engine.restart_process", "--yes", "console.cli.restart:add"),
    ),
    "what happens": (
        Verb(
            "status",
            "console.cli.status:add",
            "Show the proxy, the engines, the mock user and the groups that wait for a rating",
            "--json",
        ),
        Verb(
            "watch",
            "console.cli.watch:add",
            "Follow the events, one line each",
            "--json --filter dead:yes",
        ),
        Verb(
            "probe-set",
            "console.cli.probe_set:add",
            "Write a probe set from the held-out rows of a dataset",
            "questions.jsonl --out probe.jsonl",
        ),
        Verb(
            "progress",
            "console.cli.progress:add",
            "Say whether the policy is better than its baseline, on held-out prompts; exit code 0 "
            "better, 3 not known, 4 worse",
            "--json",
        ),
        Verb(
            "runs",
            "console.cli.engine.runs:add",
            "List the engine runs with job, rewards and verdict; show or compare them; name, note "
            "or pin one",
            "compare 12 11",
        ),
        Verb(
            "replay",
            "console.cli.replay:add",
            "Show a journal on the console's screens, without engine and proxy; nothing is written",
            "journal.db --speed 10",
        ),
        Verb(
            "journal",
            "console.cli.journal:add",
            "Show the journal's size, delete its oldest groups, or check it for damage",
            "prune --days 30",
        ),
        Verb(
            "doctor",
            "console.cli.doctor:add",
            "Check Python, terminal, ports, home, servers, keys and hooks, and suggest fixes",
            "--swarm-url http://gpu-box:10086",
        ),
        Verb(
            "completion",
            "console.cli.system.completion:add",
            "Print the script with which bash, zsh or fish completes commands and options",
            "bash",
        ),
        Verb(
            "token",
            "console.cli.system.token:add",
            "Create, list or revoke tokens with which others watch, rate or operate",
            "add anna --role rater --expires 8h",
        ),
        _of("alert.dismiss", "lost:gpu", "console.cli.alerts:add"),
    ),
    "groups and ratings": (
        _of("group.rate", "3f2a 3", "console.cli.votes:add_rate"),
        Verb(
            "raters",
            "console.cli.data.raters:add",
            "Show who rates, the pace and agreement of each rater, and the disagreements to settle",
            "--json",
        ),
        _of("group.settle", "3f2a 3", "console.cli.votes:add_later_vote"),
        _of("group.repeat", "3f2a 3", "console.cli.votes:add_later_vote"),
        _of("group.lease", "3f2a --seconds 60", "console.cli.votes:add_lease"),
        _of("group.edit", "3f2a 1 --file better.txt", "console.cli.votes:add_edit"),
        _of("group.unrate", "3f2a", "console.cli.groups:add"),
        _of("group.accept", "--where 'state:awaiting reward>0.8'", "console.cli.groups:add"),
        _of("group.abort", "--where 'state:awaiting reward<0.2' --yes", "console.cli.groups:add"),
        _of("group.rescore", "--where state:awaiting", "console.cli.groups:add"),
        _of("group.refill", "--where state:awaiting", "console.cli.groups:add"),
        _of("group.rerun", "3f2a 41cc", "console.cli.groups:add"),
        _of("group.pin", "3f2a", "console.cli.groups:add"),
        _of("group.mark", "--where 'dead:yes text~paris'", "console.cli.groups:add"),
        _of("group.note", "3f2a --text 'asks for two things'", "console.cli.groups:add"),
        Verb(
            "export",
            "console.cli.data.export:add",
            "Write ranked groups to a file: preference pairs, SFT, KTO, rankings, VERL, JSONL",
            "preference pairs.jsonl --where 'rated:yes' --split 0.9/0.1",
        ),
        _of("rating.mode", "hold"),
        _of("rating.accept_all", "--server gpu", "console.cli.waiting:add"),
        _of("rating.abort_all", "--server gpu", "console.cli.waiting:add"),
    ),
    "swarm servers": (
        _of("engine.start", "--preset hand", "console.cli.engine.control:add_start"),
        _of("engine.stop", "--all --yes", "console.cli.engine.control:add_stop"),
        _of("engine.job", "--set lr=1e-4 --set batch=8", "console.cli.engine.jobs:add_job"),
        _of("engine.apply", "--all --set lr=1e-4 --yes", "console.cli.engine.jobs:add_apply"),
        _of("engine.cancel", "--server gpu", "console.cli.engine.control:add_plain"),
        _of("engine.resume", "--all", "console.cli.engine.control:add_plain"),
        _of("engine.reset", "--server gpu --yes", "console.cli.engine.control:add_reset"),
        _of(
            "engine.abort_episode",
            "3f5bc3c9 --yes",
            "console.cli.engine.control:add_abort_episode",
        ),
        Verb(
            "checkpoints",
            "console.cli.engine.checkpoints:add",
            "List, save, restore, prune, export or import checkpoints of the embedded engine",
            "save before-lunch",
        ),
        Verb(
            "tokens",
            "console.cli.engine.checkpoints:add_tokens",
            "Show each token of an episode: id, text, loss mask, log-probs when sampled and now",
            "3f5bc3c9-0f1e-4a52-9d6e-2c8f4d1f9a10",
        ),
        _of("engine.try", "'Why is the sky blue?'", "console.cli.engine.probe:add"),
        _of("engine.try_stop", "", "console.cli.engine.probe:add_stop"),
        _of("progress.look", "--server gpu", "console.cli.engine.control:add_plain"),
        _of("progress.trust", "--server gpu", "console.cli.engine.control:add_plain"),
        _of("progress.rewind", "--yes", "console.cli.engine.rewind:add"),
        _of("progress.pause", "--all", "console.cli.engine.control:add_plain"),
        _of("progress.resume", "--all", "console.cli.engine.control:add_plain"),
        _of("progress.pair", "--json", "console.cli.pairs:add_pair"),
        _of("progress.vote", "5d1c0e9a7b42 left", "console.cli.pairs:add_vote"),
    ),
    "rewards": (
        Verb(
            "rewards",
            "console.cli.rewards.report:add",
            "Show the reward model: its parts over the last groups, and its last fault",
            "--last 500",
        ),
        Verb(
            "reward-test",
            "console.cli.rewards.test:add",
            "Score stored groups again and show what would change; nothing is sent",
            "--last 200 --rewards new.yaml",
        ),
        _of("rewards.weight", "length 0.5"),
        _of("rewards.gate", "refusal off"),
        _of("rewards.enable", "relevance off"),
        _of("rewards.whatif", "length=0.1 diversity=0.6 --last 200"),
        _of("rewards.whatif_stop"),
        _of("rewards.apply", "length=0.1 diversity=0.6"),
    ),
    "applications and scripts": (
        Verb(
            "clients",
            "console.cli.clients:add",
            "Print the settings with which a client uses the fake vLLM",
            "codex",
        ),
        Verb(
            "init",
            "console.cli.folders.scaffold:add",
            "Write a folder that trains your agent or application",
            "blackbox my_agent --dataset sums.jsonl --repeats 4",
        ),
        Verb(
            "compat",
            "console.cli.folders.compat:add",
            "Write a package `ajet`, so that a script for AgentJet runs with unchanged imports",
            "./shim && PYTHONPATH=./shim python train.py",
        ),
        Verb(
            "skills",
            "console.cli.folders.skills:add",
            "Write instructions with which coding agents use this program",
            ".claude/skills",
        ),
        Verb(
            "debug-episode",
            "console.cli.folders.debug_episode:add",
            "Run one episode of a folder and print its trace: calls, tokens, reward, traceback",
            "my_agent --item 3 --watch",
        ),
    ),
}
"""Title in `--help` -> its commands."""
