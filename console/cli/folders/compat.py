"""`init compat`: write a package `ajet`, so that AgentJet scripts run with unchanged imports."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.compat_paths import MODULES
from console.cli.common import say, say_json
from console.cli.options import Args, argument, takes
from console.cli.output import output

MARK = "# Written by `ajet-console init compat`: AgentJet itself is not installed here."
"""A line in every file this command writes; a file without it was written by something else."""


@takes(
    argument("folder", "the package goes into DIR/ajet; created when missing", metavar="DIR"),
    notes=(
        "Run the script with the Python that ajet-console is installed in. The command never "
        "replaces a package `ajet` that it did not write, and refuses where AgentJet is installed.",
    ),
)
def compat(args: Args) -> int:
    """Write the package, and print how to run a script with it."""
    if not args.folder.strip():
        raise UsageError(
            "no folder is named", "init compat", "Give one, such as `init compat ./shim`"
        )
    folder = Path(args.folder).expanduser().resolve()
    _refuse_installed()
    package = folder / "ajet"
    _refuse_foreign(package)
    if args.dry_run:
        say(output().plan(f"would write {package}: {len(MODULES)} modules with AgentJet's names"))
        return 0
    write(folder)
    command = [f"PYTHONPATH={shlex.quote(str(folder))}", shlex.quote(sys.executable), "script.py"]
    if args.json:
        modules = {name: list(names) for name, names in sorted(MODULES.items())}
        say_json({"package": str(package), "modules": modules, "run": " ".join(command)})
        return 0
    say(f"wrote {package}: {len(MODULES)} modules with AgentJet's names")
    say(f"run a script with: {' '.join(command)}")
    say(f"scripts for AgentJet often need other packages, too: {_pip()}")
    return 0


def _pip() -> str:
    return f"{shlex.quote(sys.executable)} -m pip install loguru beast-logger requests"


def write(folder: Path) -> None:
    """Write the package `ajet` into `folder`.

    Args:
        folder: Created when missing. Existing files of the package are replaced.

    Raises:
        AjetError: a file cannot be written.
    """
    for path, text in _files(MODULES):
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AjetError(f"cannot be written: {error.strerror or error}", str(target)) from error


def _files(modules: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[Path, str]]:
    """Yield each file of the package with its text."""
    packages = {
        ".".join(parts[:end])
        for parts in (name.split(".") for name in modules)
        for end in range(1, len(parts))
    }
    for name in sorted(packages | set(modules)):
        path = Path(*name.split("."))
        is_package = name in packages
        yield (
            path / "__init__.py" if is_package else path.with_suffix(".py"),
            _text(name, modules.get(name, ())),
        )


def _text(module: str, names: tuple[str, ...]) -> str:
    guard = ("report_missing",) if module == "ajet" else ()
    imports = "".join(f"    {name},\n" for name in (*names, *guard, "submodule"))
    exported = "".join(f'    "{name}",\n' for name in names)
    return (
        f'"""`{module}`, from the client library of ajet-console."""\n\n{MARK}\n'
        f"from ajet_swarm.compat import (\n{imports})\n\n__all__ = [\n{exported}]\n"
        + ("\nreport_missing()\n" if guard else "")
        + "\n\ndef __getattr__(name: str) -> object:\n    return submodule(__name__, name)\n"
    )


def _ours(path: Path) -> bool:
    try:
        return MARK in path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False


def _refuse_foreign(package: Path) -> None:
    """Refuse to replace a package `ajet` that this command did not write."""
    if not (package.exists() or package.is_symlink()):
        return
    files = [
        path for path in sorted(package.rglob("*")) if path.suffix != ".pyc" and not path.is_dir()
    ]
    foreign = package if not package.is_dir() else next((p for p in files if not _ours(p)), None)
    if foreign is not None:
        raise UsageError(
            "was not written by `ajet-console init compat` and is not replaced",
            str(foreign),
            "Name another folder",
        )


def _refuse_installed() -> None:
    """Refuse while AgentJet can be imported, because the package would hide it."""
    spec = find_spec("ajet")
    if spec is None or spec.origin is None or _ours(Path(spec.origin)):
        return
    raise AjetError(
        "AgentJet is installed, so scripts can import it",
        spec.origin,
        "Nothing was written: the package would hide AgentJet",
    )
