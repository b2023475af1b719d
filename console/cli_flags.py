"""The flags of the fake vLLM, which the console and `ajet-console proxy` have in common."""

from collections.abc import Mapping
from typing import Any

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
    "--upstream-model": {"metavar": "NAME", "help": "what to ask it for; else the first it lists"},
    "--upstream-key-file": {"metavar": "FILE", "help": "holds the key it asks for"},
    "--host": {"metavar": "ADDRESS", "help": "address the fake vLLM listens on"},
    "--port": {
        "type": int,
        "metavar": "N",
        "help": "port of the fake vLLM; 0 takes any free one",
    },
    "--hooks": {"metavar": "DIR", "help": "folder with your reward function"},
    "--tls-cert": {"metavar": "FILE", "help": "serve over TLS with this certificate (PEM)"},
    "--tls-key": {"metavar": "FILE", "help": "the certificate's private key (PEM)"},
}
"""Flag -> what argparse is told of it."""

TOP_FLAGS = (
    *PROXY_FLAGS,
    "--attach",
    "--token-file",
    "--theme",
    "--no-engine",
    "--read-only",
)
"""The console's own: given before a command they are a mistake."""
