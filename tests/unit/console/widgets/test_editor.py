"""The operator's own editor, and the console after it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import cast

import pytest
from textual.app import App

from console.widgets.editor import EditorError, edit_text, editor_of


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
