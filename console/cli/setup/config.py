"""The files that the answers are written to: `config.yaml`, and those of judge, hooks and job."""

import contextlib
import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.cli.setup.question import Draft
from console.cli.setup.questions import asked, files
from core.runtime.home import Home
from core.settings import edit, load
from core.settings.file import parse_settings, read_settings

MARK = "Setup, "
"""Beginning of the comments that the setup writes and replaces."""
HEADER = """\
# Settings of ajet-console; environment and flags have precedence. `ajet-console setup` changes
# single answers and leaves all other lines as they are. Every setting: `core/settings/`.
"""


def planned(draft: Draft) -> dict[Path, str]:
    """Return the new text of each file that differs from the one on disk; `config.yaml` is last.

    Raises:
        AjetError: `config.yaml` has a form in which it cannot be edited.
    """
    texts = files(draft) if draft.changed else {}
    texts[draft.home.config] = _settings_text(draft)
    return {path: text for path, text in texts.items() if text != _read(path)}


def _read(file: Path) -> str | None:
    return file.read_bytes().decode("utf-8") if file.exists() else None


def _settings_text(draft: Draft) -> str:
    """Return `config.yaml` with the changed answers; refuse a form that cannot be edited."""
    file = draft.home.config
    before = _read(file)
    text = HEADER if before is None else before.removeprefix("\ufeff")
    values = read_settings(file)[0]
    written: dict[str, Any] = {}
    problem = "this file cannot be edited safely"
    try:
        for question in asked(draft):
            if question.id not in draft.changed:
                continue
            answer = draft.answers[question.id]
            for place, (key, value) in enumerate(question.settings(draft, answer).items()):
                path, now = key.split("."), _value(values, key)
                if now != value and not (place and now is None and value == ""):
                    written[key] = value
                    text = edit.put(text, path, json.dumps(value, ensure_ascii=False))
                if not place:
                    comment = f"{MARK}{question.id}: {question.comment(draft, answer)}"
                    text = edit.with_comment(text, path, MARK, comment)
        after = parse_settings(text, file)[0]
        fits = after == _with(values, written)
    except AjetError as error:
        problem, fits = error.what, False
    if not fits:
        lines = "; ".join(
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in written.items()
        )
        raise AjetError(problem, str(file), f"Set by hand: {lines}")
    return text


def _with(values: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with some values, by their dotted keys."""
    whole = copy.deepcopy(dict(values))
    for key, value in written.items():
        section, *path = whole, *key.split(".")
        for name in path[:-1]:
            section[name] = section.get(name) or {}
            section = section[name]
        section[path[-1]] = value
    return whole


def _value(values: Mapping[str, Any], key: str) -> Any:
    node: Any = values
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


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
