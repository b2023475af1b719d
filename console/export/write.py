"""Writing of rows: to temporary files first, which take their names when all is written."""

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from console.export.features import arrow_schema
from console.export.split import THREE_NAMES

ROW_GROUP = 1_000
"""Rows of a group of a Parquet file."""
SUFFIXES = (".jsonl", ".parquet")
"""Suffixes that a format can have."""
_LISTED = re.compile(r"^\| rows in `([^`]+)` \|", re.MULTILINE)
"""A data file in a dataset card."""


class RowWriter(Protocol):
    """An open file of rows."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row."""

    def close(self) -> None:
        """Finish the file."""


class JsonLines:
    """One JSON object per line, keys in alphabetical order.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb", buffering=1 << 20)
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        self._file.write(self._encode(row) + b"\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class Parquet:
    """A Parquet file with a fixed schema.

    Args:
        path: The file.
        features: Types of the columns.
    """

    def __init__(self, path: Path, features: Mapping[str, Any]) -> None:
        try:
            import pyarrow.parquet  # type: ignore[import-untyped]
        except ImportError as error:
            raise UsageError(
                "a Parquet file needs pyarrow", todo="pip install 'ajet-console[data]'"
            ) from error
        self._schema = arrow_schema(features)
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="snappy")
        self._rows: list[Mapping[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Finish the file."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow

        table = pyarrow.Table.from_pylist(self._rows, schema=self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP)
        self._rows.clear()


class ExportFiles:
    """The files of one export.

    Args:
        out: A file with the suffix of the format; or a folder, for any other name.
        suffix: Suffix of the format.
        names: Names of the files of a split.
        force: Whether existing files are replaced.

    Raises:
        UsageError: A file exists, or the suffix is that of another format.
    """

    def __init__(self, out: Path, suffix: str, names: tuple[str, ...], *, force: bool) -> None:
        if out.is_file() and not out.suffix:
            raise UsageError(
                "this is a file, and a name without a suffix is that of a folder",
                str(out),
                f"Name another folder, or a file *{suffix}",
            )
        self.is_folder = out.is_dir() or not out.suffix
        if not self.is_folder and out.suffix != suffix:
            raise UsageError(
                f"this format writes {suffix} files", str(out), f"Name it *{suffix}, or a folder"
            )
        self.folder = out if self.is_folder else out.parent
        stem = "" if self.is_folder else f"{out.stem}-" if len(names) > 1 else out.stem
        single = not self.is_folder and len(names) == 1
        self.files = {
            name: self.folder / (f"{stem}{suffix}" if single else f"{stem}{name}{suffix}")
            for name in names
        }
        self.card = self.folder / ("README.md" if self.is_folder else f"{out.stem}.md")
        self._stem = "" if self.is_folder else out.stem
        self._made: list[Path] = []
        existing = [path for path in (*self.files.values(), self.card) if path.exists()]
        if existing and not force:
            raise UsageError(
                f"{'it exists' if len(existing) == 1 else 'they exist'} already",
                ", ".join(map(str, existing)),
                "Name another file or folder, or add --force to replace it",
            )

    def temporary(self, path: Path) -> Path:
        """Return the temporary path of a file."""
        return path.with_name(f".{path.name}.part-{os.getpid()}")

    def open(self, features: Mapping[str, Any]) -> dict[str, RowWriter]:
        """Open the temporary files.

        Raises:
            AjetError: They cannot be written.
        """
        try:
            missing = [self.folder, *self.folder.parents]
            self._made = [path for path in missing if not path.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
            return {
                name: Parquet(self.temporary(path), features)
                if path.suffix == ".parquet"
                else JsonLines(self.temporary(path))
                for name, path in self.files.items()
            }
        except OSError as error:
            raise AjetError(f"the export cannot be written: {error}", str(self.folder)) from error

    def finish(self, card: str) -> None:
        """Write the dataset card and give all files their names.

        The files of a replaced export with another split or suffix are deleted: their rows would
        be beside the same rows in the new files.
        """
        replaced = self._replaced()
        self.temporary(self.card).write_text(card, encoding="utf-8")
        for path in (*self.files.values(), self.card):
            with self.temporary(path).open("rb") as file:
                os.fsync(file.fileno())
        for path in replaced:
            path.unlink(missing_ok=True)
        for path in (*self.files.values(), self.card):
            self.temporary(path).replace(path)

    def _replaced(self) -> list[Path]:
        """Return the files of an earlier export, by its card, that this export does not write."""
        try:
            listed = set(_LISTED.findall(self.card.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return []
        names = {
            f"{'-'.join(filter(None, (self._stem, side)))}{suffix}"
            for side in ("", *THREE_NAMES)
            for suffix in SUFFIXES
        }
        new = {path.name for path in self.files.values()}
        return [self.folder / name for name in sorted((names & listed) - new)]

    def discard(self) -> None:
        """Delete the temporary files, and the folders that `open` made and that are empty."""
        for path in (*self.files.values(), self.card):
            with contextlib.suppress(OSError):
                self.temporary(path).unlink(missing_ok=True)
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
