"""Client programs that are installed on this machine."""

import shutil
from collections.abc import Mapping, Sequence

from console.clients.programs import PROGRAMS
from console.clients.snippets import Client

COMMANDS: Mapping[str, str] = {
    "claude-code": "claude",
    "qwen-code": "qwen",
    "aider": "aider",
    "cline": "cline",
    "opencode": "opencode",
    "codex": "codex",
    "openclaw": "openclaw",
    "pi": "pi",
    "open-webui": "open-webui",
    "chainlit": "chainlit",
    "guidellm": "guidellm",
}
"""Client -> the command that starts it."""

AGENTS = frozenset(COMMANDS) - {"open-webui", "chainlit", "guidellm"}
"""Coding agents: their first prompt is longer than the window of a small policy."""


def installed() -> Sequence[Client]:
    """Return the client programs on the path, in the order of `COMMANDS`. Reads the disk."""
    by_name = {program.name: program for program in PROGRAMS}
    return [by_name[name] for name, command in COMMANDS.items() if shutil.which(command)]
