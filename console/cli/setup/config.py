"""The files that the answers are written to: `config.yaml`, and those of judge, hooks and job."""

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.lazy_yaml import yaml
from console.cli.setup import rewards, servers
from console.cli.setup.catalog import asked
from console.cli.setup.question import Answers, Situation
from core.runtime.home import Home
from core.settings import edit, load
from core.settings.file import parse_settings, read_settings

MARK = "Setup, "
"""Beginning of the comments that the setup writes and replaces."""
HEADER = """\
# Settings of ajet-console; environment and flags have precedence. `ajet-console setup` changes
# single answers and leaves all other lines as they are. Every setting: `core/settings/`.
"""


def planned(situation: Situation, answers: Answers, changed: Collection[str]) -> dict[Path, str]:
    """Return the new text of each file that differs from the one on disk; `config.yaml` is last.

    Args:
        situation: The home.
        answers: All answers.
        changed: Ids of the questions whose answers are new.

    Raises:
        AjetError: `config.yaml` has a form in which it cannot be edited.
    """
    texts: dict[Path, str] = {}
    if changed:
        texts |= rewards.files(situation, answers) | servers.files(situation, answers)
    texts[situation.home.config] = _settings_text(situation, answers, changed)
    return {path: text for path, text in texts.items() if text != _read(path)}


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise AjetError(f"the file cannot be read: {error}", str(file)) from error


def _settings_text(situation: Situation, answers: Answers, changed: Collection[str]) -> str:
    """Return `config.yaml` with the changed answers.

    Raises:
        AjetError: a new value cannot be set, or another one would change.
    """
    file = situation.home.config
    before = _read(file)
    text = HEADER if before is None else before.removeprefix("\ufeff")
    values = read_settings(file)[0]
    written: dict[str, Any] = {}
    for one in asked(situation, answers):
        if one.id not in changed:
            continue
        for place, (key, value) in enumerate(one.settings(situation, answers[one.id]).items()):
            path, now = key.split("."), _value(values, key.split("."))
            if now != value and not (place and now is None and value == ""):
                try:
                    text = edit.put(text, path, literal(value))
                except AjetError as error:
                    todo = f"Set it to {literal(value)} by hand"
                    raise AjetError(error.what, f"{file}: {key}", todo) from error
                written[key] = value
            if not place:
                comment = f"{MARK}{one.id}: {one.comment(situation, answers[one.id])}"
                text = edit.with_comment(text, path, MARK, comment)
    after = parse_settings(text, file)[0]
    differs = any(_value(after, key.split(".")) != value for key, value in written.items())
    if differs or not edit.same_keys(values, after, set(written)):
        lines = "; ".join(f"{key}: {literal(value)}" for key, value in written.items())
        raise AjetError("this file cannot be edited safely", str(file), f"Set by hand: {lines}")
    return text


def _value(values: Mapping[str, Any], path: Sequence[str]) -> Any:
    node: Any = values
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def literal(value: Any) -> str:
    """Return a value as YAML on one line, with quotes only where YAML needs them."""
    flow = yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True)
    return str(flow).strip()[1:-1]


def apply(home: Home, texts: Mapping[Path, str]) -> None:
    """Write all files, or none: each atomically, and the earlier ones are restored on an error.

    Raises:
        AjetError: a file cannot be written, or the settings would be invalid.
    """
    Home.open(home.root)
    before = {file: _read(file) for file in texts}
    with contextlib.ExitStack() as undo:
        for file, text in texts.items():
            if not file.parent.exists():
                file.parent.mkdir(mode=0o700, parents=True)
                undo.callback(file.parent.rmdir)
            undo.callback(_restore, file, before[file])
            edit.write(file, text, f"`{file.name}`")
        load(home.config, environment={})
        undo.pop_all()  # no error and no interruption: the files stay


def _restore(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink(missing_ok=True)
    else:
        edit.write(file, text, f"`{file.name}`")
