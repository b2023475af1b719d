"""Targets of other packages: their kind in a target file, and their faults."""

import sys
import time
import types
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from core.plugins import MOCK_TARGETS, Plugins
from mock.targets import dry_run
from mock.targets import spec as spec_module
from mock.targets.base import ModelEndpoint, TargetBase
from mock.targets.plugins import OWN_KINDS, TargetKind
from mock.targets.question import Answer, Patience, Question
from mock.targets.spec import PluginSpec, TargetFileError
from tests.unit.mock.target_helpers import ask, question, spec_of, target_of


class EchoTarget(TargetBase):
    """Answers with the question and one of its options."""

    def __init__(self, spec: PluginSpec, endpoint: ModelEndpoint) -> None:
        super().__init__(spec, endpoint)
        if "mark" not in spec.options:
            raise UsageError("`mark` is missing", str(spec.path))
        self._mark = spec.options["mark"]

    async def ask(self, question: Question, patience: Patience) -> Answer | None:
        began = time.monotonic()
        values = self.values(question)
        text = f"{values['query']}{self._mark} {values['base_url']}"
        return Answer(text=text, seconds=time.monotonic() - began)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the kinds `echo` and `gone`."""
    module = types.ModuleType("a_package_with_targets")
    module.__dict__.update(ECHO=TargetKind(EchoTarget, "a test's"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    points = [
        EntryPoint("echo", f"{module.__name__}:ECHO", MOCK_TARGETS),
        EntryPoint("gone", "a_package_that_is_gone:KIND", MOCK_TARGETS),
        EntryPoint("http", f"{module.__name__}:ECHO", MOCK_TARGETS),
    ]
    plugins = Plugins(MOCK_TARGETS, TargetKind, OWN_KINDS, find=lambda group: points)
    monkeypatch.setattr(spec_module, "PLUGINS", plugins)
    monkeypatch.setattr(dry_run, "PLUGINS", plugins)


async def test_a_kind_of_another_package_answers(tmp_path: Path) -> None:
    target = target_of(tmp_path, "kind: echo\noptions: {mark: '!'}\nsessions: no\n", "http://h/v1")
    answer = await ask(target, question("hi"))
    assert answer.text == "hi! http://h/v1"


def test_faults_name_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        TargetFileError, match="`gone` does not load: ModuleNotFoundError"
    ) as caught:
        spec_of(tmp_path, "name: x\nkind: gone\n")
    assert caught.value.where.endswith("own.yaml:2")
    with pytest.raises(TargetFileError, match="Did you mean `echo`"):
        spec_of(tmp_path, "kind: ehco\n")
    with pytest.raises(TargetFileError, match="`mark` is unknown"):
        spec_of(tmp_path, "kind: echo\nmark: 3\n")
    with pytest.raises(UsageError, match="`mark` is missing"):
        target_of(tmp_path, "kind: echo\n")


def test_a_kind_of_ours_is_not_replaced(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "kind: http\nurl: http://h/{query}\n")
    assert not isinstance(spec, PluginSpec)
