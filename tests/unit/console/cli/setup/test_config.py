"""The files of the setup: all are written, or none."""

from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from console.cli.setup import config
from console.cli.setup.question import Draft
from core.runtime.home import Home
from core.settings import edit, load

ANSWERS = {
    "application": "curl",
    "dataset": "none",
    "rewards": "judge",
    "judge_url": "http://127.0.0.1:9/v1",
    "judge_key_env": "",
    "judge_model": "big",
    "engine": "laptop",
    "rating": "hold",
}


def draft(root: Path, *changed: str, **answers: str) -> Draft:
    """The draft of a home; `changed` are the new answers, all of them by default."""
    made = Draft.of(Home.at(root), root)
    made.answers, made.changed = {**ANSWERS, **answers}, set(changed or ANSWERS)
    return made


def test_the_settings_are_the_last_file_and_an_error_restores_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = draft(tmp_path / "home")
    texts = config.planned(one)
    assert list(texts) == [one.judge_file, one.home.config]
    real = edit.write

    def interrupted(file: Path, text: str, subject: str, mode: int = 0o600) -> None:
        if file == one.home.config:
            raise KeyboardInterrupt
        real(file, text, subject, mode)

    with monkeypatch.context() as patch:
        patch.setattr(edit, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            config.apply(one.home, texts)
    assert not one.judge_file.exists()
    assert not one.home.config.exists()
    config.apply(one.home, texts)
    assert load(one.home.config, environment={}).rewards.file == str(one.judge_file)


def test_a_judge_is_changed_in_its_file_and_other_lines_stay(tmp_path: Path) -> None:
    one = draft(tmp_path)
    config.apply(one.home, config.planned(one))
    text = one.judge_file.read_text().replace("weight: 1", "weight: 0.5  # mine")
    one.judge_file.write_text(text)
    texts = config.planned(draft(tmp_path, "judge_model", judge_model="small"))
    assert list(texts) == [one.judge_file]
    assert texts[one.judge_file] == text.replace("big", "small")


def test_an_unknown_shape_is_left_alone_and_the_line_to_write_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    file = tmp_path / "config.yaml"
    file.write_text("engine: &one {port: 1}\nrating: {mode: &m hold}\nproxy: {answer: best}\n")
    config.apply(Home.at(tmp_path), config.planned(draft(tmp_path, "engine")))
    assert file.read_text().endswith('swarm_url: "embedded"\n')
    file.write_text("swarm_url:\n  a: http://h:1\n")
    with pytest.raises(AjetError, match='Set by hand: swarm_url: "embedded"'):
        config.planned(draft(tmp_path, "engine"))
