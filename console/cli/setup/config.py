"""The files that the answers are written to: `config.yaml`, and those of judge, hooks and job."""

import contextlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.lazy_yaml import yaml
from console.cli.setup.catalog import asked, files_of
from console.cli.setup.question import Answers, Question, Situation
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
    file = situation.home.config
    texts = files_of(situation, answers) if changed else {}
    texts[file] = _settings_text(situation, answers, changed)
    return {path: text for path, text in texts.items() if text != _read(path)}


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise AjetError(f"the file cannot be read: {error}", str(file)) from error


def _settings_text(situation: Situation, answers: Answers, changed: Collection[str]) -> str:
    file = situation.home.config
    before = _read(file)
    text = HEADER if before is None else before.removeprefix("\ufeff")
    values = read_settings(file)[0]
    written: dict[str, Any] = {}
    for question in asked(situation, answers):
        if question.id in changed:
            text = _with_answer(text, values, question, situation, answers[question.id], written)
    _check(text, values, written, file)
    return text


def _with_answer(
    text: str,
    values: Mapping[str, Any],
    question: Question,
    situation: Situation,
    answer: str,
    written: dict[str, Any],
) -> str:
    for place, (key, value) in enumerate(question.settings(situation, answer).items()):
        path = key.split(".")
        now = _value(values, path)
        if now == value or (place and now is None and value == ""):
            if place or now is None:
                continue
        else:
            try:
                text = edit.put(text, path, literal(value))
            except AjetError as error:
                where = f"{situation.home.config}: {key}"
                raise AjetError(error.what, where, f"Set it to {literal(value)} by hand") from error
            written[key] = value
        if not place:
            comment = f"{MARK}{question.id}: {question.comment(answer)}"
            text = edit.with_comment(text, path, MARK, comment)
    return text


def _value(values: Mapping[str, Any], path: list[str]) -> Any:
    node: Any = values
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def literal(value: Any) -> str:
    """Return a value as YAML, without quotes where YAML reads the same text."""
    if isinstance(value, str) and value and value.isascii() and value.isprintable():
        with contextlib.suppress(yaml.YAMLError):
            if yaml.safe_load(f"key: {value}") == {"key": value}:
                return value
    return json.dumps(value, ensure_ascii=False)


def _check(text: str, before: Mapping[str, Any], written: Mapping[str, Any], file: Path) -> None:
    """Check that the new text has the new values, and that all others are unchanged.

    Raises:
        AjetError: it does not; nothing was written.
    """
    after = parse_settings(text, file)[0]
    fits = edit.same_keys(before, after, set(written))
    if not fits or any(_value(after, key.split(".")) != one for key, one in written.items()):
        lines = "; ".join(f"{key}: {literal(value)}" for key, value in written.items())
        raise AjetError("this file cannot be edited safely", str(file), f"Set by hand: {lines}")


def apply(home: Home, texts: Mapping[Path, str]) -> None:
    """Write all files, or none: each atomically, and the earlier ones are restored on an error.

    Raises:
        AjetError: a file cannot be written, or the settings would be invalid.
    """
    Home.open(home.root)
    before = {file: _read(file) for file in texts}
    folders = [one.parent for one in texts if not one.parent.exists()]
    done: list[Path] = []
    try:
        for file, text in texts.items():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            done.append(file)
            edit.write(file, text, f"`{file.name}`")
        load(home.config, environment={})
    except BaseException:  # interrupted as well: half of the files must not stay
        for file in reversed(done):
            if (text_before := before[file]) is None:
                file.unlink(missing_ok=True)
            else:
                edit.write(file, text_before, f"`{file.name}`")
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
