"""The flags of the fake vLLM, which the console and `ajet-console proxy` have in common."""

import argparse
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError

PROXY_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--swarm-url": {
        "action": "append",
        "metavar": "[NAME=]URL",
        "help": "swarm server, or `embedded`; repeat it for several (else AJET_SWARM_URL)",
    },
    "--upstream": {
        "metavar": "URL",
        "help": "observe mode: fan out to this OpenAI-compatible server instead, train nothing",
    },
    "--upstream-model": {"metavar": "NAME", "help": "model to ask for; else the first it lists"},
    "--upstream-key-file": {"metavar": "FILE", "help": "file with the key it requires"},
    "--host": {"metavar": "ADDRESS", "help": "address the fake vLLM listens on"},
    "--port": {
        "type": int,
        "metavar": "N",
        "help": "port of the fake vLLM; 0 takes any free one",
    },
    "--api-key-file": {"metavar": "FILE", "help": "file with the key that /v1 requires"},
    "--hooks": {"metavar": "DIR", "help": "folder with your reward function"},
    "--rewards": {"metavar": "FILE", "help": "gates and weighted parts; else rewards.yaml"},
    "--watch-only": {
        "action": "store_true",
        "help": "view only: claim nothing, start nothing, serve no /v1",
    },
    "--tls-cert": {"metavar": "FILE", "help": "serve over TLS with this certificate (PEM)"},
    "--tls-key": {"metavar": "FILE", "help": "the certificate's private key (PEM)"},
}
"""Flag -> what argparse is told of it."""

THEMES = ("dark", "light", "ansi")
"""What `--theme` takes."""

TOP_FLAGS = (
    *PROXY_FLAGS,
    "--attach",
    "--token-file",
    "--theme",
    "--no-engine",
    "--read-only",
    "--keys",
)
"""The console's own: given before a command they are a mistake."""

READING = frozenset({"status", "watch", "replay", "doctor", "clients", "tokens"})
"""Commands that change nothing; all others are refused with --read-only."""
READING_VERBS = frozenset({"list", "export"})
"""The same among those of `checkpoints`."""


def refuse_writing(given: argparse.Namespace) -> None:
    """See that a command given with --read-only changes nothing, before it does anything.

    Raises:
        UsageError: it could.
    """
    if not (given.console_read_only or getattr(given, "read_only", False)):
        return
    reads = given.command in READING
    if given.command == "checkpoints":
        reads = given.verb in READING_VERBS
    if given.command is not None and not reads:
        raise UsageError(
            f"`{given.command}` is refused with --read-only: it could change something",
            todo=f"With it: {', '.join(sorted(READING))}, checkpoints list",
        )
