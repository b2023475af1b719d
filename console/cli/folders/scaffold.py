"""`init`: folders that train an agent or an application, written from templates."""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import server_root, web_address
from console.cli.common import say
from console.cli.options import add_note

TEMPLATES = Path(__file__).parents[2] / "templates"
SUFFIX = ".tmpl"
SERVER = "http://localhost:10086"
"""AgentJet's own port, and that of `ajet-console engine`."""
MODEL = "Qwen/Qwen2.5-7B-Instruct"
DATASET = "dataset.jsonl"
"""The shipped one; written when no other is named."""
REPEATS, BATCH = 4, 8


@dataclass(frozen=True, slots=True)
class Choices:
    """What a folder is written for."""

    server: str
    model: str
    repeats: int
    batch: int
    dataset: str


KINDS = {
    "blackbox": "Write a folder that trains a program of yours on a dataset",
    "passive": "Write a folder that trains an application while it is used",
}
"""Kind of folder -> what it is."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=init)
    add_note(
        parser,
        "         ajet-console init passive my_app --server http://gpu-box:10086",
        "What is not given is asked for in a terminal, and else has its default. A file that is "
        "there already is kept, unless --force is given.",
    )
    parser.add_argument("kind", choices=tuple(KINDS), help="; ".join(KINDS.values()))
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to; made when missing")
    parser.add_argument("--server", metavar="URL", help="swarm server (else AJET_SWARM_URL)")
    parser.add_argument("--model", help="model it trains (else REMOTE_MODEL_PATH)")
    parser.add_argument("--repeats", type=int, metavar="N", help="episodes of a task; 4")
    parser.add_argument("--batch", type=int, metavar="N", help="tasks of a policy update; 8")
    parser.add_argument("--dataset", metavar="FILE", help="JSONL, Parquet or Hugging Face folder")
    parser.add_argument("--yes", action="store_true", help="ask nothing, take the defaults")
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def init(args: argparse.Namespace) -> int:
    """Write the folder."""
    folder: Path = args.folder.expanduser()
    if folder.exists() and not folder.is_dir():
        raise UsageError("not a folder", str(folder))
    choices = _choices(args, folder)
    written = write(args.kind, folder, choices, force=args.force)
    for name, new in written.items():
        say(f"{'wrote ' if new else 'kept  '} {folder / name}")
    say(f"read {folder / _readme(args.kind)}")
    return 0


def write(kind: str, folder: Path, choices: Choices, *, force: bool = False) -> dict[str, bool]:
    """Write the files of a kind; which are new, those that were there being kept.

    Args:
        kind: `blackbox` or `passive`.
        folder: Made when missing.
        choices: What goes into them.
        force: Replace what is there.

    Raises:
        AjetError: a file cannot be written.
    """
    name = one_line(folder.resolve().name, 60) or kind
    literals = {
        "name": name,
        "server": choices.server,
        "model": choices.model,
        "dataset": choices.dataset,
    }
    values = {key: _literal(value) for key, value in literals.items()} | {
        "repeats": str(choices.repeats),
        "batch": str(choices.batch),
        "title": name,
        "server_shown": choices.server,
        "model_shown": choices.model,
        "dataset_shown": choices.dataset,
    }
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AjetError(f"cannot be written: {error.strerror or error}", str(path)) from error


def _literal(text: str) -> str:
    """A Python string as the formatter writes it."""
    import json

    return json.dumps(text, ensure_ascii=False)


def _readme(kind: str) -> str:
    return "README.md" if kind == "blackbox" else "readme.md"


# --- what it is written for ----------------------------------------------------------------------


def _choices(args: argparse.Namespace, folder: Path) -> Choices:
    ask = not args.yes and sys.stdin.isatty()
    server = args.server or _asked(ask, "swarm server", os.environ.get("AJET_SWARM_URL") or SERVER)
    model = args.model or _asked(
        ask, "model it trains", os.environ.get("REMOTE_MODEL_PATH") or MODEL
    )
    repeats = _whole(args.repeats, ask, "episodes of a task", REPEATS, 2)
    batch = _whole(args.batch, ask, "tasks of a policy update", BATCH, 1)
    dataset = args.dataset or _asked(ask, "dataset (a file of your own, or the small one)", DATASET)
    if not _is_address(server):
        raise UsageError(
            "not an address", f"--server {one_line(server, 80)}", "Give http://HOST:PORT"
        )
    return Choices(server_root(server), model, repeats, batch, _dataset(dataset, folder))


def _is_address(text: str) -> bool:
    """It leads to a server; none with a password, which would stand in the files."""
    parts = web_address(text)
    if parts is None:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text
    bare = not (parts.query or parts.fragment or parts.username or parts.password)
    return plain and bare


def _dataset(given: str, folder: Path) -> str:
    """As it stands in the files: relative to the folder when it is in it."""
    if given == DATASET and not Path(given).exists():
        return DATASET
    path = Path(given).expanduser()
    if not path.exists():
        raise UsageError("there is no such file or folder", f"--dataset {given}")
    path, home = path.resolve(), folder.resolve()
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def _asked(ask: bool, what: str, usual: str) -> str:
    if not ask:
        return usual
    sys.stderr.write(f"{what} [{usual}]: ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.strip() or usual


def _whole(given: int | None, ask: bool, what: str, usual: int, least: int) -> int:
    text = str(given) if given is not None else _asked(ask, what, str(usual))
    if not text.isdigit() or int(text) < least:
        raise UsageError(f"{what}: {one_line(text, 40)!r}", todo=f"Give at least {least}")
    return int(text)


def known(kind: str) -> Mapping[str, Path]:
    """The templates of a kind, by the file they become."""
    return {one.name.removesuffix(SUFFIX): one for one in (TEMPLATES / kind).glob(f"*{SUFFIX}")}
