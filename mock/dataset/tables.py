"""Datasets in Arrow tables: Parquet files and folders written by Hugging Face datasets.

They need pyarrow, which the extra `data` installs and which is imported on first use.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import msgspec

from mock.dataset.columns import DatasetError, RowError
from mock.dataset.interface import TEXT_SUFFIXES, Dataset

WINDOW = 4_096
"""Rows of a Parquet file that are loaded, and shuffled, at a time."""
_BATCH = 512


def _library(name: str, path: Path) -> Any:
    """Import a module of pyarrow.

    Raises:
        DatasetError: pyarrow is not installed; the text names the extra.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise DatasetError(
            f"reading it needs pyarrow, which is not installed ({error})",
            str(path),
            "Install the extra: pip install 'ajet-console[data]'",
        ) from error


class TableReader(Dataset):
    """Reader of the rows of several files in sequence; all counts are known from the start."""

    place: Literal["line", "row"] = "row"
    whole = True

    def __init__(self, path: Path, names: Sequence[str], counts: Sequence[int]) -> None:
        super().__init__(path)
        self._names = tuple(names)
        self._ends = list(accumulate(counts))
        self._lock = threading.Lock()

    @property
    def row_count(self) -> int:
        return self._ends[-1] if self._ends else 0

    def scan(self, records: int = 50_000) -> bool:
        return False

    def line(self, position: int) -> int:
        return position + 1

    def names(self) -> tuple[str, ...]:
        return self._names

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the index of the row group and the row's position in it."""
        group = bisect_right(self._ends, position)
        return group, position - (self._ends[group - 1] if group else 0)


class Parquet(TableReader):
    """Reader of Parquet files of one schema; the latest window of rows is cached."""

    kind = "Parquet"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        library = _library("pyarrow.parquet", path)
        self._files: list[Any] = []
        self._groups: list[tuple[int, int]] = []
        counts: list[int] = []
        names: list[str] = []
        try:
            for file in files:
                opened = library.ParquetFile(file, memory_map=True)
                self._files.append(opened)
                names = names or list(opened.schema_arrow.names)
                for group in range(opened.metadata.num_row_groups):
                    self._groups.append((len(self._files) - 1, group))
                    counts.append(opened.metadata.row_group(group).num_rows)
        except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
            self.close()
            raise DatasetError(f"this is not a Parquet file: {_short(error)}", str(file)) from error
        super().__init__(path, names, counts)
        self._batches: Iterator[Any] = iter(())
        self._group = -1
        self._window: list[dict[str, Any]] = []
        self._window_start = 0
        self._fault = ""

    def blocks(self) -> Sequence[int]:
        lengths: list[int] = []
        for start, end in zip([0, *self._ends], self._ends, strict=False):
            lengths += [min(WINDOW, end - at) for at in range(start, end, WINDOW)]
        return lengths

    def record(self, position: int) -> dict[str, Any]:
        group, at = self._locate(position)
        with self._lock:
            try:
                self._load_window(group, at)
                return self._window[at - self._window_start]
            except (OSError, ValueError, IndexError) as error:
                self._group = -1
                raise RowError(f"the file cannot be read here: {_short(error)}") from error

    def _load_window(self, group: int, at: int) -> None:
        window = at // WINDOW * WINDOW
        if group != self._group or window < self._window_start:
            file, number = self._groups[group]
            self._batches = self._files[file].iter_batches(_BATCH, row_groups=[number])
            self._group, self._window_start, self._window = group, 0, []
        while not (self._window_start <= at < self._window_start + len(self._window)):
            self._window_start += len(self._window)
            self._window = []
            while len(self._window) < WINDOW and (batch := next(self._batches, None)) is not None:
                self._window += batch.to_pylist()
            if not self._window:
                raise IndexError("the row group has fewer rows than its metadata states")

    def sample(self) -> bytes:
        parts = [f"{self.row_count}", *self._names]
        parts += [
            f"{file.metadata.serialized_size}:{file.metadata.num_rows}" for file in self._files
        ]
        return "\0".join(parts).encode()

    def close(self) -> None:
        for file in self._files:
            file.close()


class ArrowFolder(TableReader):
    """Reader of a folder written by `Dataset.save_to_disk` of Hugging Face; memory-mapped."""

    kind = "Hugging Face"

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        arrow, ipc = _library("pyarrow", path), _library("pyarrow.ipc", path)
        self._maps: list[Any] = []
        tables: list[Any] = []
        try:
            for file in files:
                mapped = arrow.memory_map(str(file))
                self._maps.append(mapped)
                tables.append(_table(ipc, mapped))
        except (OSError, ValueError) as error:
            self.close()
            raise DatasetError(f"this is not an Arrow file: {_short(error)}", str(file)) from error
        names = tables[0].schema.names if tables else ()
        super().__init__(path, names, [table.num_rows for table in tables])
        self._tables = tables

    def record(self, position: int) -> dict[str, Any]:
        table, at = self._locate(position)
        try:
            rows: list[dict[str, Any]] = self._tables[table].slice(at, 1).to_pylist()
        except (OSError, ValueError) as error:
            raise RowError(f"the file cannot be read here: {_short(error)}") from error
        return rows[0]

    def sample(self) -> bytes:
        parts = [f"{self.row_count}", *self._names, *(str(mapped.size()) for mapped in self._maps)]
        return "\0".join(parts).encode()

    def close(self) -> None:
        self._tables = []
        for mapped in self._maps:
            mapped.close()


def _table(ipc: Any, mapped: Any) -> Any:
    """Open Arrow's stream format, which `datasets` writes, or its file format."""
    try:
        return ipc.open_stream(mapped).read_all()
    except ValueError:
        mapped.seek(0)
        return ipc.open_file(mapped).read_all()


def open_folder(path: Path) -> Dataset | Path:
    """Return the reader of a folder that contains a dataset, or its one file of text.

    Raises:
        DatasetError: the folder contains no dataset or several; the text lists its content.
    """
    splits = _json(path / "dataset_dict.json").get("splits")
    if isinstance(splits, list):
        if "train" not in splits and len(splits) != 1:
            raise DatasetError(
                f"the folder has several splits: {', '.join(map(str, splits))}",
                str(path),
                f"Name one: {path / str(splits[0]) if splits else path}",
            )
        path = path / ("train" if "train" in splits else str(splits[0]))
    state = _json(path / "state.json")
    data_files = state.get("_data_files")
    if isinstance(data_files, list):
        files = [
            path / Path(str(entry["filename"])).name
            for entry in data_files
            if isinstance(entry, dict)
        ]
        return ArrowFolder(path, files)
    return _repository_files(path)


def _repository_files(path: Path) -> Dataset | Path:
    """Return the reader of a folder with the files of a dataset repository, or its one file."""
    for endings, reader in (
        ((".parquet",), Parquet),
        ((".arrow",), ArrowFolder),
        (TEXT_SUFFIXES, None),
    ):
        files = sorted(
            file for file in (*path.glob("*"), *path.glob("*/*")) if file.suffix.lower() in endings
        )
        train = [file for file in files if file.name.startswith("train")]
        splits = {file.name.split("-")[0].split(".")[0] for file in files}
        is_one = len({file.parent for file in files}) <= 1 and (bool(train) or len(splits) == 1)
        files = train if is_one and train else files
        if files and (not is_one or (reader is None and len(files) > 1)):
            names = _some(str(file.relative_to(path)) for file in files)
            text = f"the folder has several datasets or splits: {names}"
            raise DatasetError(text, str(path), f"Name one, for example {files[0]}")
        if files:
            return reader(path, files) if reader is not None else files[0]
    inside = _some(sorted(entry.name for entry in path.iterdir()))
    raise DatasetError(
        f"the folder contains no known dataset; in it: {inside or 'nothing'}",
        str(path),
        "Name a file, or a folder with Parquet, Arrow or JSONL files",
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return ", ".join(listed[:12]) + more


def _json(path: Path) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return value if isinstance(value, dict) else {}


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
