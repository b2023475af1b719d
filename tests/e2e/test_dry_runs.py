"""A dry run of every verb against the real processes says what it would do, and does nothing."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from tests.support.commands.tree import flags, verbs
from tests.support.stack import Stack, loop_up, rows_file, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

REFUSED = {
    "alerts dismiss", "engine abort-episode", "group refill", "group repeat", "group settle",
    "journal prune", "mock pause", "mock resume", "progress look", "progress pair",
    "progress rewind", "progress trust",
}  # fmt: skip
"""Verbs that have nothing to do here: they are refused, or say so."""
WITHOUT_STEPS = {"runs pin", "journal prune", "alerts dismiss"}


PLAIN = ("lease", "unrate", "rescore", "refill", "rerun", "pin")


def command_lines(group: str, rows: Path, folder: Path) -> dict[str, list[str]]:
    """Verb -> its arguments."""
    new = str(folder / "new")
    return {
        "setup": ["dataset=none", "rewards=built_in", "engine=laptop", "rating=off"],
        "run engine": ["--port", "0", "--reset"],
        "run proxy": ["--port", "0"],
        **{verb: [str(rows)] for verb in ("run mock", "mock start")},
        "proxy restart": [],
        "engine restart": [],
        "progress probe-set": [str(rows), "--out", new, "--held-out", "0.9"],
        "runs name": ["1", "x"],
        "runs note": ["1", "x"],
        "runs pin": ["1", "on"],
        "journal prune": ["--days", "1"],
        "tokens add": ["anna", "--role", "rater", "--out", new],
        "tokens revoke": ["boris"],
        "alerts dismiss": ["nothing"],
        **{verb: [group, "1"] for verb in ("rate", "group repeat", "group settle")},
        "group edit": [group, "1", "--text", "better"],
        "group note": [group, "--text", "x"],
        **{verb: [group] for verb in ("accept", "abort", *(f"group {name}" for name in PLAIN))},
        "group mark": ["--where", "state:awaiting"],
        "export": ["preference", f"{new}.jsonl"],
        "rating mode": ["off"],
        "engine job": ["--set", "lr=1e-4"],
        "engine apply": ["--set", "lr=1e-4"],
        "engine abort-episode": ["3f5b"],
        "checkpoints save": ["a"],
        "checkpoints restore": ["base"],
        "checkpoints prune": ["1"],
        "checkpoints export": ["base", new],
        "checkpoints import": ["b", str(rows)],
        "engine try": ["hello"],
        "progress vote": ["5d1c", "left"],
        "rewards weight": ["relevance", "0.7"],
        "rewards gate": ["relevance", "on"],
        "rewards enable": ["relevance", "off"],
        "rewards whatif": ["relevance=0.3"],
        "rewards apply": ["relevance=0.3"],
        **{f"init {kind}": [new, "--yes"] for kind in ("passive", "blackbox")},
        **{verb: [new] for verb in ("init compat", "skills")},
        "run episode": [str(folder)],
    }


def home_files(home: Path) -> dict[str, str]:
    """Each file of a home that a verb could change, with its digest."""
    left_out = ("logs", "run", "mock", "looks")
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.is_file()
        and path.relative_to(home).parts[0] not in left_out
        and not path.name.startswith("journal.db")
    }


def orders(stack: Stack) -> list[str]:
    text = (stack.home.logs / "proxy.log").read_text(errors="replace")
    return [line for line in text.splitlines() if ": command " in line]


def test_no_dry_run_changes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    rows = rows_file(tmp_path / "rows.jsonl", 30)
    with loop_up(tmp_path / "home") as stack:
        monkeypatch.setenv("AJET_CONSOLE_HOME", str(stack.home.root))
        assert main(["rating", "mode", "answer_first"]) == 0
        assert main(["tokens", "add", "boris", "--role", "viewer"]) == 0
        asked = stack.run("run", "mock", str(rows_file(tmp_path / "one.jsonl", 1)), "--json")
        counts = json.loads(asked.stdout)
        assert (counts["ok"], counts["answered"], counts["ended"]) == (True, 1, "finished")
        state = until(
            "a group waits", lambda: (found := stack.state()).waiting() and found, every=0.05
        )
        lines = command_lines(state.waiting()[0].group_id, rows, folder)
        known = {verb for verb, command in verbs().items() if "--dry-run" in flags(command)}
        assert set(lines) <= known
        capsys.readouterr()
        before = (home_files(stack.home.root), orders(stack), stack.status()["engine_status"])
        for verb in sorted(known):
            code = main([*verb.split(), *lines.get(verb, []), "--dry-run"])
            printed = capsys.readouterr()
            assert (code == 0) or verb in REFUSED, (verb, printed)
            if verb not in ("run engine", "run proxy"):
                body = _envelope([*verb.split(), *lines.get(verb, []), "--dry-run"], capsys)
                assert body["dry_run"] is True, verb
                assert body["exit_code"] == code, verb
                assert body["steps"] or verb in REFUSED | WITHOUT_STEPS, (verb, body)
        assert list(folder.iterdir()) == []
        after = (home_files(stack.home.root), orders(stack), stack.status()["engine_status"])
        assert after == before
        assert stack.state().rating_mode == "answer_first"


def _envelope(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([*argv, "--json"])
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body
