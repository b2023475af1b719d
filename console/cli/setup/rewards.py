"""The questions about rewards: built in, a judge, a folder of hooks, or files of the operator."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import known_names, one_line
from console.cli.folders.scaffold import known
from console.cli.setup.question import (
    AnswerRefused,
    Answers,
    Check,
    Checked,
    Choice,
    Question,
    Situation,
    seen,
)
from console.doctor.judge import check_judge
from console.doctor.remote import check_hooks
from core.runtime.secrets import env_key
from core.settings import edit
from proxy.rewards.judge.part import Judge
from proxy.rewards.judge.settings import address
from proxy.rewards.model.file import load, make, parse

KINDS = BUILT_IN, JUDGE, HOOKS = "built_in", "judge", "hooks"
HOOK_FILE = "on_compute_relative_reward.py"
PART = "helpful"
"""Name of the judge's part."""

_JUDGE_TEXT = """\
# Written by `ajet-console setup`; every setting: docs/guide/judge.md. Changes apply at once.
parts:
  degeneration: {kind: repetition, gate: true}
  finished: {gate: true}
  helpful:
    kind: judge
    weight: 1
    url: ""
    key_env: null
    model: null
    mode: listwise
"""


def _choices(situation: Situation) -> list[Choice]:
    verb = "uses" if _has_hooks(situation) else "writes an example to"
    return [
        Choice(BUILT_IN, "built-in rules", "or those of rewards.yaml in the home"),
        Choice(JUDGE, "a language model as a judge", "needs the URL of an API"),
        Choice(HOOKS, "your own Python function", f"{verb} hooks/ in the home"),
    ]


def _has_hooks(situation: Situation) -> bool:
    return (situation.hooks_folder / HOOK_FILE).is_file()


def _present(situation: Situation) -> str:
    own = situation.settings.rewards
    if own.hooks:
        return HOOKS if Path(own.hooks) == situation.hooks_folder else own.hooks
    if own.file:
        return JUDGE if Path(own.file) == situation.judge_file else own.file
    return BUILT_IN


def _check(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check a kind or a path; hooks are loaded in a process of their own."""
    if answer == HOOKS and not _has_hooks(situation):
        return Checked(answer, (f"an example is written to {situation.hooks_folder}",))
    if answer in (BUILT_IN, JUDGE):
        return Checked(answer)
    path = situation.hooks_folder if answer == HOOKS else Path(answer).expanduser().absolute()
    if path.is_dir():
        return seen(asyncio.run(check_hooks(path)), answer if answer == HOOKS else str(path))
    if not path.is_file():
        what = f"there is no file or folder `{one_line(answer, 80)}`"
        raise AnswerRefused(what, todo=f"{known_names(answer, KINDS)}, or a path")
    parts = ", ".join(part.name for part in load(path).active)
    return Checked(str(path), (f"parts: {parts}",))


def _settings(situation: Situation, answer: str) -> Mapping[str, Any]:
    own = {BUILT_IN: "", JUDGE: situation.judge_file, HOOKS: situation.hooks_folder}
    path = str(own.get(answer, answer))
    if answer == HOOKS or (path and Path(path).is_dir()):
        return {"rewards.hooks": path, "rewards.file": ""}
    return {"rewards.file": path, "rewards.hooks": ""}


def _judge_value(situation: Situation, name: str) -> str:
    """Return a setting of the judge in the file that the setup wrote; empty without one."""
    part = load(situation.judge_file).named(PART) if situation.judge_file.is_file() else None
    return str(part.settings.get(name) or "") if part is not None else ""


def _check_key(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check that the variable has a usable key; an empty name means that none is needed."""
    absent = answer not in os.environ
    if answer:
        env_key(answer, "the judge's key", {answer: "unknown"} if absent else None)
    if answer and absent and situation.live:
        todo = f"The proxy reads it when it starts: `export {answer}=...` before"
        raise AnswerRefused("the variable is not set", answer, todo, usable=answer)
    return Checked(answer)


def _check_model(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Ask the judge's server for its models, as `doctor` does."""
    if answer.isdigit():
        raise AnswerRefused(f"`{answer}` is a number, not a model", todo="Give its name, or -")
    key = answers.get("judge_key_env", "")
    if key and key not in os.environ:
        return Checked(answer, (f"not checked: {key} is not set",))
    if not situation.live:
        return Checked(answer)
    file = situation.judge_file
    model = parse(_judge_text(situation, {**answers, "judge_model": answer}), file)
    part = next(part for part in model.parts if part.kind == JUDGE)
    judge = make(part, model, file.parent)
    assert isinstance(judge, Judge)
    finding = asyncio.run(check_judge(judge))
    return seen(finding, answer, usable=answer)


def _judge_text(situation: Situation, answers: Answers) -> str:
    """Return the rewards file with the judge of the answers; other lines stay as they are."""
    file = situation.judge_file
    text = file.read_text(encoding="utf-8") if file.is_file() else _JUDGE_TEXT
    for name in ("url", "key_env", "model"):
        answer = answers.get(f"judge_{name}", "")
        if answer != _judge_value(situation, name):
            text = edit.put(text, ("parts", PART, name), json.dumps(answer or None))
    return text


def files(situation: Situation, answers: Answers) -> dict[Path, str]:
    """Return the files of the judge or of the hooks that are not there yet or change."""
    if answers.get("rewards") == JUDGE:
        return {situation.judge_file: _judge_text(situation, answers)}
    if answers.get("rewards") == HOOKS and not _has_hooks(situation):
        text = known("passive")[HOOK_FILE].read_text(encoding="utf-8")
        return {situation.hooks_folder / HOOK_FILE: text}
    return {}


def _judge_question(name: str, title: str, free: str, check: Check, **more: Any) -> Question:
    return Question(
        id=f"judge_{name}",
        title=title,
        free=free,
        present=lambda situation: _judge_value(situation, name),
        check=check,
        asked=lambda situation, answers: answers.get("rewards") == JUDGE,
        **more,
    )


QUESTIONS: Sequence[Question] = (
    Question(
        id="rewards",
        title="What scores the answers?",
        choices=_choices,
        free="the path of your hooks or rewards file",
        present=_present,
        check=_check,
        settings=_settings,
    ),
    _judge_question(
        "url",
        "URL of the judge (an OpenAI-compatible API)",
        "https://HOST/v1",
        lambda situation, answers, answer: Checked(address(answer)),
        renews=("judge_key_env", "judge_model"),
    ),
    _judge_question(
        "key_env",
        "Environment variable that has its key",
        "the name, never the key itself; - when it needs none",
        _check_key,
        renews=("judge_model",),
        optional=True,
    ),
    _judge_question(
        "model",
        "Model of the judge",
        "its name; - takes the first one that the server lists",
        _check_model,
        optional=True,
    ),
)
