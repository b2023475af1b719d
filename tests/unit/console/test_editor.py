"""The operator's own editor, and the console after it."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import cast

import pytest
from textual.app import App

from console.widgets.editor import DRAFTS, EditorError, edit_text, editor_of


class Leaving:
    """An app as Textual makes it: an exception in `suspend` never restores its terminal."""

    def __init__(self) -> None:
        self.away = False

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.away = True
        yield
        self.away = False

    def batch_update(self) -> AbstractContextManager[None]:
        return nullcontext()


async def test_the_console_comes_back_from_an_editor_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", str(tmp_path / "none"))
    monkeypatch.delenv("VISUAL", raising=False)
    app = Leaving()
    with pytest.raises(EditorError, match="none: No such file"):
        await edit_text(cast("App[int]", app), "text")
    assert not app.away


def test_the_editor_comes_from_the_environment(tmp_path: Path) -> None:
    assert editor_of({"VISUAL": "code -w", "EDITOR": "vi"}) == ["code", "-w"]
    assert editor_of({"EDITOR": "'my editor' -x"}) == ["my editor", "-x"]
    with pytest.raises(EditorError, match="no editor"):
        editor_of({"PATH": str(tmp_path)})
    with pytest.raises(EditorError, match="EDITOR cannot be read"):
        editor_of({"EDITOR": "vi 'x"})


async def edited(
    monkeypatch: pytest.MonkeyPatch, script: str, text: str, draft: Path | None
) -> str:
    """The text after an editor that is a shell script; `$1` is the file."""
    monkeypatch.setenv("VISUAL", f"sh -c '{script}' sh")
    return await edit_text(cast("App[int]", Leaving()), text, draft=draft)


async def test_a_draft_outlives_a_failure_and_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / "drafts" / "answer.md"
    with pytest.raises(EditorError, match="ended with 3: the draft is kept"):
        await edited(monkeypatch, 'printf " better" >> "$1"; exit 3', "one", draft)
    assert draft.read_text() == "one better"
    assert draft.stat().st_mode & 0o777 == 0o600
    assert await edited(monkeypatch, 'printf " still" >> "$1"', "one", draft) == "one better still"
    assert draft.read_text() == "one better still"
    with pytest.raises(EditorError, match="ended with 3: the text is unchanged"):
        await edited(monkeypatch, "exit 3", "one", None)


async def test_only_the_newest_drafts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(DRAFTS + 3):
        (tmp_path / f"{number}.md").write_text("old")
        os.utime(tmp_path / f"{number}.md", (number, number))
    await edited(monkeypatch, "true", "one", tmp_path / "new.md")
    kept = {file.stem for file in tmp_path.iterdir()}
    assert kept == {"new", *(str(number) for number in range(3, DRAFTS + 3))}
