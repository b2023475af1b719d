"""Parquet files and Hugging Face folders, through pyarrow, which is imported on first use."""

import threading
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from ajet_swarm.data.records import Records, RowError
from ajet_swarm.protocol.errors import DatasetError

WINDOW = 4_096
"""Rows of a Parquet file that are loaded, and shuffled, at a time."""


class TableRecords(Records):
    """The rows of several files of one schema in sequence; all counts are known from the start.

    Args:
        path: The file or the folder.
        files: The files.

    Raises:
        DatasetError: pyarrow is not installed, or a file is none of this kind.
    """

    place = "row"
    whole = True
    suffix: str

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        super().__init__(path)
        self._opened: list[Any] = []
        counts: list[int] = []
        for file in files:
            try:
                counts += self._open(file)
            except ImportError as error:
                raise DatasetError(
                    f"reading it needs pyarrow, which is not installed ({error})",
                    str(path),
                    "Install the extra: pip install 'ajet-console[data]'",
                ) from error
            except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
                self.close()
                what = f"this is not {self.suffix} file: {_short(error)}"
                raise DatasetError(what, str(file)) from error
        self._ends = list(accumulate(counts))
        self.count = sum(counts)

    @abstractmethod
    def _open(self, file: Path) -> list[int]:
        """Open a file; return the numbers of rows of its parts."""

    @abstractmethod
    def _row(self, part: int, at: int) -> dict[str, Any]:
        """Return a row of a part."""

    @abstractmethod
    def _sizes(self) -> list[str]:
        """Return what tells the contents of the files apart."""

    def scan(self, records: int = 50_000) -> bool:
        return False

    def line(self, position: int) -> int:
        return position + 1

    def record(self, position: int) -> dict[str, Any]:
        part = bisect_right(self._ends, position)
        try:
            return self._row(part, position - (self._ends[part - 1] if part else 0))
        except (OSError, ValueError, IndexError) as error:
            raise RowError(f"the file cannot be read here: {_short(error)}") from error

    def sample(self) -> bytes:
        return "\0".join([f"{self.count}", *self.names, *self._sizes()]).encode()

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


class Parquet(TableRecords):
    """Parquet files; the latest window of rows is cached."""

    kind = "Parquet"
    suffix = "a Parquet"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self._groups: list[tuple[Any, int]] = []
        self._lock = threading.Lock()
        self._part, self._start = -1, 0
        self._batches: Iterator[Any] = iter(())
        self._window: list[dict[str, Any]] = []
        super().__init__(path, files)

    def _open(self, file: Path) -> list[int]:
        opened = import_module("pyarrow.parquet").ParquetFile(file, memory_map=True)
        self._opened.append(opened)
        self.names = self.names or tuple(opened.schema_arrow.names)
        groups = range(opened.metadata.num_row_groups)
        self._groups += [(opened, group) for group in groups]
        return [opened.metadata.row_group(group).num_rows for group in groups]

    def blocks(self) -> Sequence[int]:
        lengths: list[int] = []
        for start, end in zip([0, *self._ends], self._ends, strict=False):
            lengths += [min(WINDOW, end - at) for at in range(start, end, WINDOW)]
        return lengths

    def _row(self, part: int, at: int) -> dict[str, Any]:
        with self._lock:
            if part != self._part or at < self._start:
                file, group = self._groups[part]
                self._batches = file.iter_batches(WINDOW, row_groups=[group])
                self._part, self._start, self._window = part, 0, []
            try:
                while at >= self._start + len(self._window):
                    self._start += len(self._window)
                    batch = next(self._batches, None)
                    if batch is None:
                        raise IndexError("the row group has fewer rows than its metadata states")
                    self._window = batch.to_pylist()
                return self._window[at - self._start]
            except (OSError, ValueError, IndexError):
                self._part = -1
                raise

    def _sizes(self) -> list[str]:
        metadata = [file.metadata for file in self._opened]
        return [f"{data.serialized_size}:{data.num_rows}" for data in metadata]


class Arrow(TableRecords):
    """A folder written by `Dataset.save_to_disk` of Hugging Face, or its files; memory-mapped."""

    kind = "Hugging Face"
    suffix = "an Arrow"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self._tables: list[Any] = []
        super().__init__(path, files)

    def _open(self, file: Path) -> list[int]:
        mapped = import_module("pyarrow").memory_map(str(file))
        self._opened.append(mapped)
        ipc = import_module("pyarrow.ipc")
        try:  # the stream format, which `datasets` writes, or the file format
            table = ipc.open_stream(mapped).read_all()
        except ValueError:
            mapped.seek(0)
            table = ipc.open_file(mapped).read_all()
        self._tables.append(table)
        self.names = self.names or tuple(table.schema.names)
        return [table.num_rows]

    def _row(self, part: int, at: int) -> dict[str, Any]:
        row: dict[str, Any] = self._tables[part].slice(at, 1).to_pylist()[0]
        return row

    def _sizes(self) -> list[str]:
        return [str(mapped.size()) for mapped in self._opened]

    def close(self) -> None:
        self._tables = []
        super().close()


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
