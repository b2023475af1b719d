"""Datasets: records of any format (`ajet_swarm.data`), each of which becomes a row.

A dataset is scanned in the background and read row by row; a broken row is reported with its line
and skipped.
"""

from pathlib import Path

from ajet_swarm.data.files import SUFFIXES, open_records
from mock.dataset.columns import Columns
from mock.dataset.interface import Dataset
from mock.dataset.rows import BadRow, BadRows, Row

__all__ = [
    "SUFFIXES",
    "BadRow",
    "BadRows",
    "Columns",
    "Dataset",
    "Row",
    "open_dataset",
    "open_records",
    "shipped",
]


def shipped() -> Path:
    """Return the path of the questions shipped with the program."""
    return Path(__file__).parents[1] / "data" / "questions.jsonl"


def open_dataset(path: Path, columns: Columns | None = None) -> Dataset:
    """Open a dataset and check its first rows; reads the disk, so call it off the event loop.

    Args:
        path: A file or a folder.
        columns: Column names; the usual ones by default.

    Raises:
        DatasetError: it is missing, unreadable, lacks a column, or has no usable row.
    """
    dataset = Dataset(open_records(path), columns)
    try:
        dataset.check_head()
    except BaseException:
        dataset.records.close()
        raise
    return dataset
