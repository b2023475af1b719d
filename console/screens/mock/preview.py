"""A preview of a dataset: its columns, its first rows, its errors; below the errors of a run."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from ajet_swarm.common.text import one_line, plain
from console.models.datasets import SHIPPED, field_text
from console.models.preview import Preview
from console.screens.mock.text import problem_lines
from console.text.lines import EMPTY, Line, fit
from console.text.wrap import safe, wrapped
from console.widgets.pane import TextPane

DELAY = 0.2
"""Seconds after the last key before a file is read."""
_ROOMY = 78
"""Width in cells from which more rows are shown."""
_BYTES = ("B", "kB", "MB", "GB", "TB")

Reader = Callable[[], Iterator[Preview]]


class DatasetPreview(TextPane):
    """Shows a preview, and reads more of the dataset in the background."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.preview = Preview()
        self._problems: tuple[str, ...] = ()
        self._dataset = ""
        self._loaded = asyncio.Event()

    @property
    def loaded(self) -> bool:
        """Whether `preview` shows the dataset that was requested last."""
        return self._loaded.is_set()

    async def wait_until_loaded(self) -> None:
        """Wait until `preview` shows the dataset that was requested last."""
        while not self._loaded.is_set():
            await self._loaded.wait()

    def load(self, read: Reader, delay: float = DELAY) -> None:
        """Preview another dataset and close the previous one.

        Args:
            read: Yields growing previews; runs in threads.
            delay: Seconds to wait first; a later call within this time replaces this one.
        """
        before, self._loaded = self._loaded, asyncio.Event()
        before.set()  # its waiters now wait for the new event
        reading = self._read(read, delay, self._loaded)
        self.run_worker(reading, group="preview", exclusive=True, exit_on_error=False)

    async def _read(self, read: Reader, delay: float, loaded: asyncio.Event) -> None:
        """Show each preview; the files are closed with the generator, once no thread reads it."""
        await asyncio.sleep(delay)
        previews = read()
        while (preview := await asyncio.to_thread(next, previews, None)) is not None:
            self.preview = preview
            loaded.set()
            self.paint_preview()
            await asyncio.sleep(0.02)

    def show_problems(self, problems: tuple[str, ...], dataset: str) -> None:
        """Show rows that the run of `dataset` could not use above the preview."""
        self._problems, self._dataset = problems, dataset
        self.paint_preview()

    def paint_preview(self) -> None:
        """Paint what is known.

        The problems of a run are left out where the preview lists them too, or is of another
        dataset.
        """
        preview, problems = self.preview, self._problems
        known = preview.kind or preview.error
        if preview.bad or (known and not self._is_dataset_of_run(preview.path)):
            problems = ()
        self.show(
            (problems, preview),
            lambda width: [*problem_lines(problems, width), *preview_lines(preview, width)],
        )

    def _is_dataset_of_run(self, text: str) -> bool:
        """Return whether `text` of the form names the dataset of the run."""
        if text in ("", SHIPPED):
            return not field_text(self._dataset)
        named, asked = Path(text).expanduser(), Path(self._dataset)
        return named == asked if named.is_absolute() else named.name == asked.name


def preview_lines(preview: Preview, width: int) -> list[Line]:
    """Return name and size, columns, errors, the first rows."""
    name = one_line(preview.path, 300) or "shipped questions"
    if len(name) > max(12, width // 2):
        name = "…" + name[-max(11, width // 2 - 1) :]
    lines: list[Line] = [((name, "$heading"), (f"  {_facts(preview)}", "$muted"))]
    if preview.error:
        tone = "$reward-down"
        return [*lines, *(((text, tone),) for text in wrapped(preview.error, width))]
    lines += _columns(preview, width)
    lines += _problems(preview, width)
    if width >= _ROOMY:
        lines.append(EMPTY)
    for query, reference in preview.rows:
        lines.append((("· ", "$muted"), (fit(plain(query), max(4, width - 2)), "")))
        if reference:
            lines.append((("  → ", "$muted"), (fit(plain(reference), max(4, width - 4)), "$muted")))
    return lines


def _facts(preview: Preview) -> str:
    if not preview.kind:
        return ""
    count = f"{preview.count:,} row{'' if preview.count == 1 else 's'}"
    parts = [preview.kind, size_text(preview.size) if preview.size else ""]
    parts.append(count if preview.whole else f"{count} so far …")
    return " · ".join(part for part in parts if part)


def _columns(preview: Preview, width: int) -> list[Line]:
    labels = [
        part if part == name else f"{part} ← {safe(one_line(name, 40))}"
        for name, part in preview.columns
        if part
    ]
    other = [safe(one_line(name, 40)) for name, part in preview.columns if not part]
    if other:
        labels.append("also " + ", ".join(other))
    return [((text, "$muted"),) for text in wrapped("   ".join(labels), width)[:3]]


def _problems(preview: Preview, width: int) -> list[Line]:
    if not preview.bad:
        return []
    of = "" if preview.checked >= preview.count and preview.whole else f" of {preview.checked:,}"
    title = f"{preview.bad:,}{of} cannot be used"
    shown = [
        ((fit(safe(text), width), "$warning"),)
        for text in preview.problems[: 5 if width >= _ROOMY else 1]
    ]
    return [((title, "bold $warning"),), *shown]


def size_text(size: int) -> str:
    """Return `1234567` as `1.2 MB`."""
    amount, units = float(size), iter(_BYTES)
    unit = next(units)
    while amount >= 1000 and unit != _BYTES[-1]:
        amount, unit = amount / 1000, next(units)
    return f"{amount:.{0 if unit == 'B' or amount >= 100 else 1}f} {unit}"
