"""`skills`: the shipped instructions for coding agents, and what the verb writes."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from console.cli.folders.skills import SKILLS
from tests.support.commands.cli import Cli

FILES = sorted(SKILLS.glob("*/SKILL.md"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_skill_is_a_page_with_name_and_description(file: Path) -> None:
    text = file.read_text()
    _, front, body = text.split("---\n", 2)
    head = yaml.safe_load(front)
    assert (set(head), head["name"]) == ({"name", "description"}, file.parent.name)
    assert "Use it when" in head["description"]
    assert body.strip().startswith("# ")
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_commands_of_a_skill_parse(file: Path, cli: Cli) -> None:
    lines = re.findall(r"^ *ajet-console (.*)$", file.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        assert "usage" in cli.out(*shlex.split(line), "--help").lower()


def test_all_skills_are_written_once(cli: Cli, tmp_path: Path) -> None:
    assert "would write" in cli.out("skills", tmp_path / "skills", "--dry-run")
    assert not (tmp_path / "skills").exists()
    written = cli.json("skills", tmp_path / "skills")["files"]
    assert len(written) == len(FILES) == 3
    assert [Path(name).read_text() for name in written] == [file.read_text() for file in FILES]


def test_existing_files_are_replaced_only_by_force(cli: Cli, tmp_path: Path) -> None:
    mine = tmp_path / FILES[-1].relative_to(SKILLS)
    mine.parent.mkdir()
    mine.write_text("mine")
    assert "--force" in cli.refused("skills", tmp_path)
    assert mine.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [mine.parent.name]
    cli("skills", tmp_path, "--force")
    assert mine.read_text() == FILES[-1].read_text()
