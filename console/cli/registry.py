"""Every command of the registry as a verb of the command line: names, flags and their help."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from core.commands import COMMANDS, MODES
from core.commands.groups import ABORT_REASONS

_NAMED: Mapping[str, str] = {
    "mock.start": "mock",
    "rating.mode": "mode",
    "rating.accept_all": "accept-all",
    "rating.abort_all": "abort-all",
    "engine.save": "checkpoints save",
    "engine.restore": "checkpoints restore",
    "engine.prune": "checkpoints prune",
    "journal.prune": "journal prune",
    "proxy.drain": "drain",
    "engine.try": "try",
    "engine.try_stop": "try-stop",
}
"""Those that are not called by the rule."""

_REASONS = ", ".join(ABORT_REASONS)
_EXIT = "Exit code: 0 all done, 1 something was refused, 2 wrong use."

Maker = Callable[..., argparse.ArgumentParser]
Adder = Callable[[argparse.ArgumentParser], None]


def words_of(command: str) -> str:
    """What a command of the registry is called on the command line.

    `group.VERB` is VERB, any other is AREA-VERB, and a few have a name of their own.
    """
    area, _, verb = command.partition(".")
    plain = verb if area == "group" else f"{area}-{verb}"
    return _NAMED.get(command, plain.replace("_", "-"))


class Verbs:
    """Adds the verbs about groups, ratings, the mock user and the proxy.

    Args:
        commands: Where commands go.
        command: Makes one.
        reach: Adds the flags that name a proxy.
        yes: Adds `--yes`.
    """

    def __init__(self, commands: Any, command: Maker, reach: Adder, yes: Adder) -> None:
        self._commands = commands
        self._command = command
        self._reach = reach
        self._yes = yes

    def add(self) -> None:
        """All of them."""
        self._votes()
        self._groups()
        self._ways_out()
        self._rewards()
        self._seat()

    # --- one group --------------------------------------------------------------------------------

    def _votes(self) -> None:
        rate = self._order("group.rate", "g3f2 3", "console.cli.commands:rate")
        rate.description = (
            f"{COMMANDS['group.rate'].help}.\n\nCandidates are counted from 1. `rate GROUP 3`: the "
            "third is best. `rate GROUP 3 1 2 4`: a ranking, best first."
        )
        kind = _ballot(rate)
        kind.add_argument("--undo", action="store_true", help=COMMANDS["group.unrate"].help)
        rate.add_argument("--note", metavar="TEXT", help="why")
        rate.add_argument(
            "--override",
            action="store_true",
            help="replace another rater's vote, or ignore a lease",
        )
        rate.add_argument(
            "--tag", action="append", metavar="REASON", help="a reason; repeat it for several"
        )
        repeat = self._order("group.repeat", "g3f2 3", "console.cli.ballots:repeat")
        about = COMMANDS["group.repeat"].help
        repeat.description = f"{about}.\n\nSaid as with `rate`: the best, or all, best first."
        _ballot(repeat)
        lease = self._order("group.lease", "g3f2 --seconds 60", "console.cli.ballots:lease")
        lease.add_argument("group_id", metavar="GROUP", help=_group_help("group.lease"))
        lease.add_argument(
            "--holder", metavar="NAME", help="name of the console; else this user and host"
        )
        lease.add_argument("--rater", metavar="NAME", help="who looks")
        lease.add_argument("--seconds", type=float, metavar="S", help="how long; 0 gives it back")
        edit = self._order("group.edit", "g3f2 1 --file better.txt", "console.cli.ballots:edit")
        edit.add_argument("group_id", metavar="GROUP", help=_group_help("group.edit"))
        edit.add_argument("candidate", type=int, metavar="N", help="candidate it corrects, from 1")
        text = edit.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", metavar="TEXT", help="the whole better text")
        text.add_argument("--file", metavar="FILE", help="holds that text; - is standard input")
        text.add_argument("--clear", action="store_true", help="remove the correction")
        edit.add_argument("--rater", metavar="NAME", help="who wrote it")

    # --- several groups ---------------------------------------------------------------------------

    def _groups(self) -> None:
        self._bulk("group.unrate", "g3f2").add_argument("--rater", metavar="NAME", help="who rates")
        self._bulk("group.accept", "--where 'state:awaiting reward>0.8'")
        abort = self._bulk("group.abort", "--where 'state:awaiting reward<0.2' --yes")
        abort.add_argument("--reason", metavar="TEXT", help=f"such as: {_REASONS}")
        self._yes(abort)
        self._bulk("group.rescore", "--where state:awaiting")
        self._bulk("group.refill", "--where state:awaiting")
        self._bulk("group.rerun", "g3f2 g41c")
        mark = self._bulk("group.mark", "--where 'dead:yes text~paris'")
        how = mark.add_mutually_exclusive_group()
        how.add_argument("--clear", action="store_true", help="clear it; set when left out")
        how.add_argument("--toggle", action="store_true", help="set it where it is not, and back")
        note = self._bulk("group.note", "g3f2 --text 'asks for two things'")
        text = note.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", metavar="TEXT", help="the note")
        text.add_argument("--clear", action="store_true", help="remove the note")

    def _bulk(self, command: str, example: str) -> argparse.ArgumentParser:
        parser = self._order(command, example, "console.cli.groups:each")
        parser.add_argument("groups", nargs="*", metavar="GROUP", help=_group_help(command))
        parser.add_argument(
            "--where",
            metavar="FILTER",
            help="all groups on screen that it fits and the order makes sense for, in the words "
            "of the console's filter line",
        )
        return parser

    # --- all that wait ----------------------------------------------------------------------------

    def _ways_out(self) -> None:
        mode = self._order("rating.mode", "hold")
        mode.add_argument("mode", choices=MODES, help=COMMANDS["rating.mode"].help)
        for command in ("rating.accept_all", "rating.abort_all"):
            parser = self._order(command, "--server gpu")
            parser.add_argument("--server", metavar="NAME", help=COMMANDS[command].args[0].help)
            target = "console.cli.commands:accept_all"
            if COMMANDS[command].danger:
                parser.add_argument("--reason", metavar="TEXT", help=f"such as: {_REASONS}")
                target = "console.cli.commands:abort_all"
                self._yes(parser)
            else:
                parser.add_argument("--yes", action="store_true", help="do not ask on a terminal")
            parser.set_defaults(target=target)

    # --- the rewards ------------------------------------------------------------------------------

    def _rewards(self) -> None:
        for command, example in (
            ("rewards.weight", "length 0.5"),
            ("rewards.gate", "format on"),
            ("rewards.enable", "relevance off"),
        ):
            parser = self._order(command, example)
            parser.description = f"{COMMANDS[command].help}."
            part, value = COMMANDS[command].args
            parser.add_argument("part", metavar="PART", help=part.help)
            if value.kind == "float":
                parser.add_argument(value.name, type=float, metavar="X", help=value.help)
            else:
                parser.add_argument(value.name, choices=("on", "off"), help=value.help)

        for command, example in (
            ("rewards.whatif", "length=0.1 diversity=0.6 --last 200"),
            ("rewards.whatif_stop", ""),
            ("rewards.apply", "length=0.1 diversity=0.6"),
        ):
            parser = self._order(command, example)
            parser.description = f"{COMMANDS[command].help}."
            for arg in COMMANDS[command].args:
                if arg.name == "weights":
                    parser.add_argument("weights", nargs="*", metavar="PART=W", help=arg.help)
                else:
                    kind = int if arg.kind == "int" else str
                    parser.add_argument(f"--{arg.name}", type=kind, metavar="X", help=arg.help)

    # --- the rest ---------------------------------------------------------------------------------

    def _seat(self) -> None:
        for verb in ("pause", "resume", "stop"):
            self._order(f"mock.{verb}", "")
        self._order("proxy.drain", "")
        dismiss = self._order("alert.dismiss", "engine.lost.gpu", "console.cli.seat:dismiss")
        dismiss.description = f"{COMMANDS['alert.dismiss'].help}.\n\nWithout a key: lists them."
        dismiss.add_argument("keys", nargs="*", metavar="KEY", help="key of the alert")
        dismiss.add_argument("--all", action="store_true", help="all of them")
        for command in ("proxy.restart", "engine.restart_process"):
            parser = self._order(command, "--yes", "console.cli.seat:restart", reach=False)
            self._yes(parser)

    def _order(
        self,
        command: str,
        example: str,
        target: str = "console.cli.commands:plain_order",
        *,
        reach: bool = True,
    ) -> argparse.ArgumentParser:
        name = words_of(command)
        about = COMMANDS[command].help
        parser = self._command(self._commands, name, target, about, f"{name} {example}".strip())
        parser.epilog = f"{parser.epilog}\n{_EXIT}"
        parser.set_defaults(order_name=command)
        parser.add_argument("--json", action="store_true", help="what was done, as JSON")
        if reach:
            self._reach(parser)
        return parser


def _group_help(command: str) -> str:
    return next(arg.help for arg in COMMANDS[command].args if arg.name == "group_id")


def _ballot(parser: argparse.ArgumentParser) -> Any:
    """The arguments of a vote; returns the group of those that exclude each other."""
    parser.add_argument("group_id", metavar="GROUP", help=_group_help("group.rate"))
    parser.add_argument(
        "order", nargs="*", type=int, default=[], metavar="N", help="best, or all, best first"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--scores", nargs="+", type=float, metavar="X", help="one score a candidate")
    kind.add_argument("--tie", action="store_true", help="all are equal: teaches nothing")
    kind.add_argument("--bad", action="store_true", help="all are bad: teaches nothing")
    kind.add_argument("--skip", action="store_true", help="send no reward: the group is aborted")
    parser.add_argument("--rater", metavar="NAME", help="who rates")
    return kind
