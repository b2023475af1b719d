"""Field reader of target files, and their error with file, line and field."""

from pathlib import Path

from core.settings.yaml_file import Faults, FieldReader, FileFault


class TargetFileError(FileFault):
    """A target file has one or more faults."""


TargetFields = FieldReader[TargetFileError]
"""Reader of the fields of a target file, or of a mapping in it."""


def faults_of(path: Path) -> Faults[TargetFileError]:
    """Return the fault collector of a target file."""

    def fault(line: int, field: str, problem: str, todo: str) -> TargetFileError:
        what = f"`{field}` {problem}" if field else f"this {problem}"
        return TargetFileError(what, f"{path}:{line}" if line else str(path), todo, line)

    return Faults(TargetFileError, fault)
