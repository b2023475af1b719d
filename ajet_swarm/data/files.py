"""Datasets in files and folders: which reader reads them, and their rows in sequence."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ajet_swarm.data.records import Records, RowError, open_text
from ajet_swarm.data.tables import Arrow, Parquet
from ajet_swarm.protocol.errors import DatasetError

Row = Mapping[str, Any]
LocatedRow = tuple[str, Row]
"""Location of a row (`path:line`), and the row."""

TEXT_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
SUFFIXES: Final = (*TEXT_SUFFIXES, ".parquet", ".arrow")
"""Suffixes of the files of a dataset."""
BATCH: Final = 256
"""Records that `rows_of` looks for at a time."""
_COMPRESSED: Final = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"PK\x03\x04": ("ZIP", "unzip"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"BZh": ("bzip2", "bunzip2"),
}
"""First bytes of compressed files -> their kind and the program that unpacks them."""


def open_records(path: Path) -> Records:
    """Return the reader of a file or folder, chosen by its name and first bytes.

    Raises:
        DatasetError: it is missing, unreadable, or of an unknown format; names it.
    """
    try:
        if path.is_dir():
            return _open_folder(path)
        if not path.is_file() and path.exists():
            raise DatasetError("this is neither a file nor a folder", str(path))
        with path.open("rb") as file:
            head = file.read(65_536)
        if head.startswith(b"PAR1"):
            return Parquet(path, [path])
        if path.suffix.lower() == ".arrow":
            return Arrow(path, [path])
        for magic, (kind, program) in _COMPRESSED.items():
            if head.startswith(magic):
                raise DatasetError(f"this is {kind}-compressed", str(path), f"Run {program} first")
        return open_text(path, head)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DatasetError(
            f"the dataset cannot be read: {reason or error}",
            str(path),
            "Name a JSONL, JSON, CSV or Parquet file, or a Hugging Face folder",
        ) from error


def rows_of(path: Path) -> Iterator[LocatedRow]:
    """Read the rows of one dataset in sequence.

    Raises:
        DatasetError: it cannot be read, or a row is broken; names the file and the line.
    """
    with open_records(path) as records:
        position = 0
        while position < records.count or records.scan(BATCH) or position < records.count:
            where = f", {records.place} " if records.place != "line" else ":"
            where = f"{path}{where}{records.line(position)}"
            try:
                yield where, records.record(position)
            except RowError as error:
                raise DatasetError(str(error), where, "Give one object for each row") from error
            position += 1


def split_files(folder: Path, name: str | None, split: str) -> list[Path]:
    """Return the files of one split of a Hugging Face directory.

    Layouts: `[name/][data/]split-00000-of-00001.parquet`, `split.jsonl`, and a folder `split/`.

    Args:
        folder: The dataset's directory.
        name: Its configuration: a folder in it.
        split: `train`, `test`, ...

    Raises:
        DatasetError: there are none; the text lists the existing splits.
    """
    base = folder / name if name else folder
    data = [path for path in sorted(base.rglob("*")) if _is_data(path, base)]
    found: dict[str, list[Path]] = {}
    for path in data:
        if split in (_split_of(path), path.parent.name):
            *above, _ = path.relative_to(base).parts
            configuration = "" if not above or above[0] in ("data", split) else above[0]
            found.setdefault(configuration, []).append(path)
    if "" in found or len(found) == 1:  # the name may be omitted if there is a single configuration
        return found.get("") or next(iter(found.values()))
    splits = sorted({_split_of(path) for path in data})
    existing = f"splits {', '.join(splits)}" if splits else "no data file"
    folders = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if folders and not name:
        existing += f"; dataset_name may be one of {', '.join(folders[:8])}"
    raise DatasetError(f"no split `{split}`; there is {existing}", str(folder))


def _is_data(path: Path, base: Path) -> bool:
    hidden = any(part[0] in "._" for part in path.relative_to(base).parts)
    return path.suffix.lower() in SUFFIXES and not hidden and path.is_file()


def _split_of(path: Path) -> str:
    """Return the split of a file: `train` of `train-00000-of-00002.parquet` and `train.jsonl`."""
    stem = path.name.removesuffix(path.suffix)
    head, dash, tail = stem.partition("-")
    return head if dash and tail[:1].isdigit() else stem


def _open_folder(path: Path) -> Records:
    """Return the reader of a folder: of `save_to_disk`, or with the files of a repository.

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
    data_files = _json(path / "state.json").get("_data_files")
    if isinstance(data_files, list):
        names = [Path(str(entry["filename"])).name for entry in data_files]
        return Arrow(path, [path / name for name in names])
    inside = [*path.glob("*"), *path.glob("*/*")]
    for suffixes, reader in (((".parquet",), Parquet), ((".arrow",), Arrow), (TEXT_SUFFIXES, None)):
        files = sorted(file for file in inside if file.suffix.lower() in suffixes)
        train = [file for file in files if file.name.startswith("train")]
        is_one = len({file.parent for file in files}) <= 1 and (
            bool(train) or len(set(map(_split_of, files))) == 1
        )
        files = train if is_one and train else files
        if files and (not is_one or (reader is None and len(files) > 1)):
            text = f"the folder has several datasets or splits: {_some(files, path)}"
            raise DatasetError(text, str(path), f"Name one, for example {files[0]}")
        if files:
            return reader(path, files) if reader is not None else open_records(files[0])
    raise DatasetError(
        f"the folder contains no known dataset; in it: {_some(sorted(path.iterdir()), path)}",
        str(path),
        "Name a file, or a folder with Parquet, Arrow or JSONL files",
    )


def _some(files: Iterable[Path], folder: Path) -> str:
    listed = [str(file.relative_to(folder)) for file in files]
    more = f" and {len(listed) - 12} more" if len(listed) > 12 else ""
    return (", ".join(listed[:12]) or "nothing") + more


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}
