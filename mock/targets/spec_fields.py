"""Reader of the fields of a target file, and the fault that names file, line and field."""

from pathlib import Path

from core.settings.yaml_file import Faults, FieldReader, FileFault


class TargetFileError(FileFault):
    """A target file cannot be used, for one fault or for several."""


TargetFields = FieldReader[TargetFileError]
"""The fields of a target file, or of one of its mappings."""


def faults_of(path: Path) -> Faults[TargetFileError]:
    """Return the collector of a target file's faults."""

    def fault(line: int, field: str, problem: str, todo: str) -> TargetFileError:
        what = f"`{field}` {problem}" if field else f"this {problem}"
        return TargetFileError(what, f"{path}:{line}" if line else str(path), todo, line)

    return Faults(TargetFileError, fault)
