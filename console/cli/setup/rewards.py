"""The answers about rewards: built in, a judge, a folder of hooks, or files of the operator."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import known_names, one_line
from console.cli.setup.question import AnswerRefused, Answers, Checked, Choice, Situation

BUILT_IN = "built_in"
JUDGE = "judge"
HOOKS = "hooks"
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


def choices(situation: Situation) -> list[Choice]:
    """Return the kinds of rewards."""
    own = (situation.home.root / "rewards.yaml").is_file()
    title = "your rewards.yaml in the home" if own else "built-in rules"
    note = "" if own else "length, relevance, references, no loops"
    there = (situation.hooks_folder / HOOK_FILE).is_file()
    return [
        Choice(BUILT_IN, title, note),
        Choice(JUDGE, "a language model as a judge", "needs the URL of an API"),
        Choice(
            HOOKS,
            "your own Python function",
            f"{'uses' if there else 'writes an example to'} {situation.hooks_folder}",
        ),
    ]


def present(situation: Situation) -> str:
    """Return the present answer: a kind, or a path of the operator's."""
    own = situation.settings.rewards
    if own.hooks:
        return HOOKS if Path(own.hooks) == situation.hooks_folder else own.hooks
    if own.file:
        return JUDGE if Path(own.file) == situation.judge_file else own.file
    return BUILT_IN if situation.configured else ""


def has_judge(answers: Answers) -> bool:
    """Return whether a judge was chosen."""
    return answers.get("rewards") == JUDGE


async def check(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check a kind or a path; hooks are loaded in a process of their own."""
    if answer == HOOKS and not (situation.hooks_folder / HOOK_FILE).is_file():
        return Checked(answer, (f"an example is written to {situation.hooks_folder}",))
    if answer in (BUILT_IN, JUDGE):
        return Checked(answer)
    path = situation.hooks_folder if answer == HOOKS else await asyncio.to_thread(_path, answer)
    if await asyncio.to_thread(path.is_dir):
        from console.doctor.remote import check_hooks

        finding = await check_hooks(path)
        if finding.level == "fail":
            raise AnswerRefused(finding.text, todo=finding.todo)
        return Checked(answer if answer == HOOKS else str(path), (finding.text,))
    return await asyncio.to_thread(_check_file, path, answer)


def _path(answer: str) -> Path:
    return Path(answer).expanduser().absolute()


def _check_file(path: Path, answer: str) -> Checked:
    """Check a rewards file of the operator."""
    if not path.is_file():
        known = [BUILT_IN, JUDGE, HOOKS]
        raise AnswerRefused(
            f"there is no file or folder `{one_line(answer, 80)}`",
            todo=f"{known_names(answer, known)}, or a path",
        )
    from proxy.rewards.model.file import ModelFault, load

    try:
        model = load(path)
    except ModelFault as fault:
        raise AnswerRefused(fault.what, fault.where, fault.todo) from fault
    return Checked(str(path), (f"parts: {', '.join(one.name for one in model.active)}",))


def settings(situation: Situation, answer: str) -> Mapping[str, Any]:
    """Return the settings of a kind or a path."""
    if answer == HOOKS:
        return {"rewards.hooks": str(situation.hooks_folder), "rewards.file": ""}
    if answer == JUDGE:
        return {"rewards.file": str(situation.judge_file), "rewards.hooks": ""}
    if answer == BUILT_IN:
        return {"rewards.file": "", "rewards.hooks": ""}
    if Path(answer).is_dir():
        return {"rewards.hooks": answer, "rewards.file": ""}
    return {"rewards.file": answer, "rewards.hooks": ""}


def comment(answer: str) -> str:
    """Return what an answer means."""
    return {
        BUILT_IN: "the built-in rules, or rewards.yaml in the home (empty)",
        JUDGE: "a judge and two gates",
        HOOKS: f"the folder with {HOOK_FILE}: edit it, changes apply at once",
    }.get(answer, "your own rewards")


# --- the judge -------------------------------------------------------------------------------


def judge_value(situation: Situation, name: str) -> str:
    """Return a setting of the judge in the file that the setup wrote; empty without one."""
    from proxy.rewards.model.file import ModelFault, load

    if not situation.judge_file.is_file():
        return ""
    try:
        part = load(situation.judge_file).named(PART)
    except ModelFault as fault:
        raise AnswerRefused(fault.what, fault.where, fault.todo) from fault
    return str(part.settings.get(name) or "") if part is not None else ""


async def check_judge_url(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check the form of the judge's URL."""
    from proxy.rewards.judge.settings import address
    from proxy.rewards.part import SettingError

    try:
        return Checked(address(answer))
    except SettingError as error:
        raise AnswerRefused(error.what, "judge_url", error.todo) from error


async def check_judge_key(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check that the variable holds a usable key; an empty name means that none is needed."""
    from core.runtime.secrets import env_key

    if answer:
        absent = answer not in os.environ
        try:
            env_key(answer, "the judge's key", {answer: "key"} if absent else None)
        except AjetError as error:
            raise AnswerRefused(error.what, error.where, error.todo) from error
        if absent and situation.live:
            raise AnswerRefused(
                "the variable is not set",
                answer,
                f"`export {answer}=...` before the proxy starts, which reads it",
                usable=answer,
            )
    return Checked(answer)


async def check_judge_model(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Ask the judge's server for its models, as `doctor` does."""
    if answer.isdigit():
        raise AnswerRefused(f"`{answer}` is a number, not a model", todo="Give its name, or -")
    if not situation.live:
        return Checked(answer)
    key = answers.get("judge_key_env", "")
    if key and key not in os.environ:
        return Checked(answer, (f"not checked: {key} is not set",))
    from console.doctor.judge import check_judge
    from proxy.rewards.judge.budget import JudgeBudgets
    from proxy.rewards.judge.part import Judge
    from proxy.rewards.model.file import ModelFault, make, parse

    file = situation.judge_file
    try:
        model = parse(_judge_text(situation, {**answers, "judge_model": answer}), file)
        parts = [make(one, model, file.parent) for one in model.active if one.kind == JUDGE]
    except ModelFault as fault:
        raise AnswerRefused(fault.what, fault.where, fault.todo) from fault
    for one in parts:
        if isinstance(one, Judge):
            finding = await check_judge(Judge(one.options, JudgeBudgets()))
            if finding.level == "fail":
                raise AnswerRefused(finding.text, todo=finding.todo, usable=answer)
            return Checked(answer, (finding.text,))
    return Checked(answer)


def _judge_text(situation: Situation, answers: Answers) -> str:
    """Return the rewards file with the judge of the answers; other lines stay as they are."""
    from core.settings import edit

    file = situation.judge_file
    text = file.read_text(encoding="utf-8") if file.is_file() else _JUDGE_TEXT
    for name in ("url", "key_env", "model"):
        answer = answers.get(f"judge_{name}", "")
        if answer != judge_value(situation, name):
            literal = json.dumps(answer, ensure_ascii=False) if answer else "null"
            text = edit.put(text, ("parts", PART, name), literal)
    return text


# --- files -----------------------------------------------------------------------------------


def files(situation: Situation, answers: Answers) -> dict[Path, str]:
    """Return the files of the judge or of the hooks that are not there yet or change."""
    from console.cli.folders.scaffold import known

    if has_judge(answers):
        return {situation.judge_file: _judge_text(situation, answers)}
    target = situation.hooks_folder / HOOK_FILE
    if answers.get("rewards") == HOOKS and not target.exists():
        return {target: known("passive")[HOOK_FILE].read_text(encoding="utf-8")}
    return {}
