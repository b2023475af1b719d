"""Tracebacks cut to the operator's code, with the place of the fault."""

import sys
from pathlib import Path

import pytest

from proxy.rewards.hooks.functions import fault_of_error


def raised(code: str, file: Path) -> BaseException:
    file.write_text(code)
    try:
        exec(compile(code, str(file), "exec"), {"sys": sys})
    except BaseException as error:  # noqa: BLE001 - also SystemExit
        return error
    raise AssertionError("the code did not raise")


def test_tracebacks_are_cut_to_the_hooks_frames(tmp_path: Path) -> None:
    file = tmp_path / "hook.py"
    error = raised("import json\ndef f():\n    json.loads('{')\nf()\n", file)
    fault = fault_of_error(error, tmp_path)
    assert fault.cause.startswith("json.decoder.JSONDecodeError")
    assert (fault.file, fault.line) == (str(file), 3)
    assert "decoder.py" not in fault.traceback
    assert "test_hook_pieces" not in fault.traceback
    assert "json.loads('{')" in fault.traceback


def test_syntax_errors_have_a_place(tmp_path: Path) -> None:
    fault = fault_of_error(raised("x = 1\ndef f(:\n", tmp_path / "hook.py"), tmp_path)
    assert fault.cause.startswith("SyntaxError")
    assert fault.line == 2


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("import no_such_package.inner", "install the package no_such_package"),
        ("import ajet.copilot.job", "only ajet.schema.task and ajet.utils.compute_madness"),
    ],
)
def test_missing_packages_are_named_with_their_line(tmp_path: Path, code: str, result: str) -> None:
    fault = fault_of_error(raised(f"\n{code}\n", tmp_path / "hook.py"), tmp_path)
    assert result in fault.cause
    assert "imported at hook.py:2" in fault.cause


def test_endless_recursion_and_chains_stay_short(tmp_path: Path) -> None:
    code = (
        "def f():\n    f()\ntry:\n    f()\nexcept RecursionError as e:\n"
        "    raise ValueError('z' * 9000) from e\n"
    )
    fault = fault_of_error(raised(code, tmp_path / "hook.py"), tmp_path)
    assert len(fault.cause) < 500
    assert len(fault.traceback) < 17_000
    assert "direct cause" in fault.traceback
