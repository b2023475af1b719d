"""`init`: write a folder that trains an agent or an application, from templates."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import server_root, web_address
from console.cli.common import say, say_json
from console.cli.options import Args, argument, flag, option, takes
from console.cli.output import output

TEMPLATES = Path(__file__).parents[2] / "templates"
SUFFIX = ".tmpl"
SERVER = "http://localhost:10086"
"""The default port of AgentJet and of `ajet-console run engine`."""
MODEL = "Qwen/Qwen2.5-7B-Instruct"
DATASET = "dataset.jsonl"
"""The shipped dataset; written unless another one is named."""
REPEATS, BATCH, GPUS = 4, 8, 8


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that the templates are filled with."""

    server: str
    model: str
    repeats: int
    batch: int
    gpus: int
    dataset: str


@takes(
    argument("folder", "the folder; created when missing", type=Path, metavar="DIR"),
    option("--server", "URL", "swarm server (else AJET_SWARM_URL)"),
    option("--model", None, "model to train (else REMOTE_MODEL_PATH)"),
    option("--repeats", "N", "episodes per task (4)", type=int),
    option("--batch", "N", "tasks per policy update (8)", type=int),
    option("--gpus", "N", "GPUs of each node of the server (8)", type=int),
    option("--dataset", "FILE", "JSONL, Parquet or Hugging Face folder"),
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
    choices, kind = _choices(args, folder), args.words.removeprefix("init ")
    written = write(kind, folder, choices, force=args.force)
    for name, new in written.items():
        wrote = "would write " if args.dry_run else "wrote "
        say(f"{wrote if new else 'kept  '} {folder / name}")
    if not any(written.values()):
        say("nothing was changed: all files exist already; --force replaces them")
    if args.json:
        say_json({"folder": str(folder), "files": written})
    if args.dry_run:
        return 0
    say(f"read {folder / _readme(kind)}")
    return 0


def write(kind: str, folder: Path, choices: Choices, *, force: bool = False) -> dict[str, bool]:
    """Write the files of a kind.

    Args:
        kind: `blackbox` or `passive`.
        folder: Created when missing.
        choices: The values for the templates.
        force: Replace existing files instead of keeping them.

    Returns:
        By file name, whether the file was written; False for a file that was kept.

    Raises:
        AjetError: a file cannot be written.
    """
    name = one_line(folder.resolve().name, 60) or kind
    values = {"title": name, "name": _literal(name)}
    for key, value in asdict(choices).items():
        values[key] = _literal(value) if isinstance(value, str) else str(value)
        values[f"{key}_shown"] = str(value)
    done: dict[str, bool] = {}
    for source in sorted((TEMPLATES / kind).iterdir()):
        if not source.name.endswith(SUFFIX):
            continue
        target = source.name.removesuffix(SUFFIX)
        if target == DATASET and choices.dataset != DATASET:
            continue
        text = source.read_text(encoding="utf-8")
        if not target.endswith(".jsonl"):
            text = Template(text).substitute(values)
        done[target] = force or not (folder / target).exists()
        if done[target]:
            _write(folder / target, text)
    return done


def _write(path: Path, text: str) -> None:
    if output().dry_run:
        output().plan(f"would write {path}")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AjetError(f"cannot be written: {error.strerror or error}", str(path)) from error


def _literal(text: str) -> str:
    """Return the text as a Python string literal in double quotes."""
    import json

    return json.dumps(text, ensure_ascii=False)


def _readme(kind: str) -> str:
    return "README.md" if kind == "blackbox" else "readme.md"


# --- the choices ---------------------------------------------------------------------------------


def _choices(args: Args, folder: Path) -> Choices:
    ask = not args.yes and sys.stdin.isatty()
    server = args.server or _ask(ask, "swarm server", os.environ.get("AJET_SWARM_URL") or SERVER)
    model = args.model or _ask(ask, "model to train", os.environ.get("REMOTE_MODEL_PATH") or MODEL)
    gpus = _whole_number(args.gpus, ask, "GPUs of each node of the server", GPUS, 1)
    repeats = _whole_number(args.repeats, ask, "episodes per task", REPEATS, 2)
    batch = _whole_number(args.batch, ask, "tasks per policy update", BATCH, 1)
    dataset = args.dataset or _ask(ask, "dataset (your own file, or the shipped one)", DATASET)
    if not _is_address(server):
        raise UsageError(
            "not an address", f"--server {one_line(server, 80)}", "Give http://HOST:PORT"
        )
    return Choices(server_root(server), model, repeats, batch, gpus, _dataset(dataset, folder))


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
