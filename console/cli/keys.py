"""`ajet-console --keys`: list every key with its name in the settings, and the conflicts."""

import sys
from collections.abc import Mapping

from textual.keys import format_key

from console.app import ConsoleApp
from console.models.screen_registry import SCREENS
from console.shell.keymap import clashes, key_problems, listing

_COLUMN = 14


def usable_keys(custom: Mapping[str, str]) -> Mapping[str, str]:
    """Return the valid entries of `console.keys`: id of an action -> its keys."""
    return key_problems(custom, ConsoleApp, [screen.load() for screen in SCREENS])[0]


def show_keys(custom: Mapping[str, str]) -> int:
    """Write the list to standard output.

    Args:
        custom: `console.keys` of the settings.

    Returns:
        The exit code: 1 when a key of the settings cannot be used.
    """
    screens = [screen.load() for screen in SCREENS]
    keymap, problems = key_problems(custom, ConsoleApp, screens)
    problems += clashes(ConsoleApp, screens)
    area = ""
    lines: list[str] = []
    for key in listing(ConsoleApp, screens, keymap):
        if key.area != area:
            area = key.area
            lines += ["", area]
        shown = " ".join(format_key(combination) for combination in key.keys)
        about = f"{key.title}: {key.about}" if key.about else key.title
        changed = "  (yours)" if key.action_id in keymap else ""
        lines.append(f"  {shown:<{_COLUMN}} {key.action_id:<26} {about}{changed}")
    lines += ["", "Change a key in config.yaml under `console.keys`: `engine.stop: ctrl+k`."]
    if problems:
        lines += ["", "Keys that cannot be used:", *(f"  {problem}" for problem in problems)]
    else:
        lines.append("No two actions have the same key.")
    sys.stdout.write("\n".join(lines[1:]) + "\n")
    return 1 if problems else 0
