"""`init` and `skills`: write folders for agents, applications, AgentJet scripts, coding agents."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import server_root, web_address
from ajet_swarm.compat_paths import MODULES
from console.cli.common import write_file
from console.cli.options import Args, argument, flag, option, takes
from console.cli.output import output, say, say_json, would

# --- init blackbox, init passive -----------------------------------------------------------------

TEMPLATES = Path(__file__).parents[1] / "templates"
SUFFIX = ".tmpl"
SERVER = "http://localhost:10086"
"""The default port of AgentJet and of `ajet-console run engine`."""
MODEL = "Qwen/Qwen2.5-7B-Instruct"
DATASET = "dataset.jsonl"
"""The shipped dataset; written unless another one is named."""
REPEATS, BATCH, GPUS = 4, 8, 8


@takes(
    argument("folder", "the folder; created when missing", type=Path, metavar="DIR"),
    option("--server URL", "swarm server (else AJET_SWARM_URL)"),
    option("--model", "model to train (else REMOTE_MODEL_PATH)"),
    option("--repeats N", "episodes per task (4)", type=int),
    option("--batch N", "tasks per policy update (8)", type=int),
    option("--gpus N", "GPUs of each node of the server (8)", type=int),
    option("--dataset FILE", "JSONL, Parquet or Hugging Face folder"),
    flag("--yes", "do not ask, take the defaults"),
    flag("--force", "replace existing files"),
    notes=(
        "On a terminal, the command asks for missing values; otherwise it takes the defaults. "
        "Existing files are kept, unless --force is given.",
    ),
)
def init(args: Args) -> int:
    """Write the folder."""
    folder: Path = args.folder.expanduser()
    if folder.exists() and not folder.is_dir():
        raise UsageError("not a folder", str(folder))
    written = _write(args, folder, _choices(args, folder))
    for name, new in written.items():
        wrote = "would write " if args.dry_run else "wrote "
        say(f"{wrote if new else 'kept  '} {folder / name}")
    if not any(written.values()):
        say("nothing was changed: all files exist already; --force replaces them")
    if args.json:
        say_json({"folder": str(folder), "files": written})
    if not args.dry_run:
        readme = next(name for name in written if name.lower() == "readme.md")
        say(f"read {folder / readme}")
    return 0


def _write(args: Args, folder: Path, choices: Mapping[str, str | int]) -> dict[str, bool]:
    """Write the files of a kind with some values in their templates.

    Returns:
        By file name, whether the file was written; False for a file that was kept.
    """
    kind = args.words.removeprefix("init ")
    name = one_line(folder.resolve().name, 60) or kind
    values = {"title": name, "name": json.dumps(name, ensure_ascii=False)}
    for key, value in choices.items():
        values[key] = json.dumps(value, ensure_ascii=False)
        values[f"{key}_shown"] = str(value)
    done: dict[str, bool] = {}
    for target, source in sorted(known(kind).items()):
        if target == DATASET and choices["dataset"] != DATASET:
            continue
        text = source.read_text(encoding="utf-8")
        if not target.endswith(".jsonl"):
            text = Template(text).substitute(values)
        done[target] = args.force or not (folder / target).exists()
        if done[target] and not args.dry_run:
            write_file(folder / target, text)
        elif done[target]:
            output().plan(f"would write {folder / target}")
    return done


def _choices(args: Args, folder: Path) -> dict[str, str | int]:
    ask = not args.yes and sys.stdin.isatty()
    server = args.server or _ask(ask, "swarm server", os.environ.get("AJET_SWARM_URL") or SERVER)
    model = args.model or _ask(ask, "model to train", os.environ.get("REMOTE_MODEL_PATH") or MODEL)
    gpus = _whole_number(args.gpus, ask, "GPUs of each node of the server", GPUS, 1)
    repeats = _whole_number(args.repeats, ask, "episodes per task", REPEATS, 2)
    batch = _whole_number(args.batch, ask, "tasks per policy update", BATCH, 1)
    dataset = args.dataset or _ask(ask, "dataset (your own file, or the shipped one)", DATASET)
    if not _is_address(server):
        where = f"--server {one_line(server, 80)}"
        raise UsageError("not an address", where, "Give http://HOST:PORT")
    return {
        "server": server_root(server),
        "model": model,
        "repeats": repeats,
        "batch": batch,
        "gpus": gpus,
        "dataset": _dataset(dataset, folder),
    }


def _is_address(text: str) -> bool:
    """Return whether the text is a server's URL; one with a password is refused."""
    parts = web_address(text)
    if parts is None:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    bare = not (parts.query or parts.fragment or parts.username or parts.password)
    return plain and bare


def _dataset(name: str, folder: Path) -> str:
    """Return the dataset's path for the written files: relative if it is inside the folder."""
    if name == DATASET and not Path(name).exists():
        return DATASET
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError("there is no such file or folder", f"--dataset {name}")
    path, home = path.resolve(), folder.resolve()
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def _ask(ask: bool, what: str, default: str) -> str:
    """Ask the operator for a value; return the default for an empty line or without a terminal."""
    if not ask:
        return default
    sys.stderr.write(f"{what} [{default}]: ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.strip() or default


def _whole_number(flag: int | None, ask: bool, what: str, default: int, least: int) -> int:
    text = str(flag) if flag is not None else _ask(ask, what, str(default))
    if not text.isdigit() or int(text) < least:
        raise UsageError(f"{what}: {one_line(text, 40)!r}", todo=f"Give at least {least}")
    return int(text)


def known(kind: str) -> Mapping[str, Path]:
    """Return the templates of a kind by the name of the file they become."""
    return {path.name.removesuffix(SUFFIX): path for path in (TEMPLATES / kind).glob(f"*{SUFFIX}")}


# --- init compat ---------------------------------------------------------------------------------

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
    wrote = f"{package}: {len(MODULES)} modules with AgentJet's names"
    if would(f"write {wrote}"):
        return 0
    for path, text in _files(MODULES):
        write_file(folder / path, text)
    command = [f"PYTHONPATH={shlex.quote(str(folder))}", shlex.quote(sys.executable), "script.py"]
    if args.json:
        modules = {name: list(names) for name, names in sorted(MODULES.items())}
        say_json({"package": str(package), "modules": modules, "run": " ".join(command)})
        return 0
    say(f"wrote {wrote}")
    say(f"run a script with: {' '.join(command)}")
    pip = f"{shlex.quote(sys.executable)} -m pip install loguru beast-logger requests"
    say(f"scripts for AgentJet often need other packages, too: {pip}")
    return 0


def _files(modules: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[Path, str]]:
    """Yield each file of the package with its text."""
    names = {*modules, *(name.rpartition(".")[0] for name in modules)} - {""}
    packages = {name.rpartition(".")[0] for name in names}
    for name in sorted(names):
        path = Path(*name.split("."))
        file = path / "__init__.py" if name in packages else path.with_suffix(".py")
        yield file, _text(name, modules.get(name, ()))


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


# --- skills --------------------------------------------------------------------------------------

SKILLS = Path(__file__).parents[1] / "skills"
"""A folder for each skill, with the file `SKILL.md`."""


@takes(
    argument(
        "folder", "the agent's folder of skills; created when missing", type=Path, metavar="DIR"
    ),
    flag("--force", "replace existing files"),
    notes=("Existing files are not replaced, unless --force is given.",),
)
def skills(args: Args) -> int:
    """Write all skills, or none if a file exists already."""
    folder: Path = args.folder.expanduser()
    sources = {
        folder / source.relative_to(SKILLS): source for source in sorted(SKILLS.glob("*/SKILL.md"))
    }
    existing = [target for target in sources if target.exists()]
    if existing and not args.force:
        raise UsageError("exists already", str(existing[0]), "Give --force to replace it")
    for target, source in sources.items():
        if not would(f"write {target}"):
            write_file(target, source.read_bytes())
            say(f"wrote {target}")
    if args.json:
        say_json({"files": [str(target) for target in sources]})
    return 0
