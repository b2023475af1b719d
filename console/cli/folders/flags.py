"""`init`, `compat` and `debug-episode` as the parser knows them; light."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = {
    "blackbox": "Write a folder that trains a program of yours on a dataset",
    "passive": "Write a folder that trains an application while it is used",
}
"""Kind of folder -> what it is."""


def add_folders(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add all three.

    Args:
        commands: Where commands go.
        command: Makes one.
    """
    init = command(
        commands,
        "init",
        "console.cli.folders.scaffold:init",
        "Write a folder with which an agent or an application of yours is trained",
        "init blackbox my_agent --dataset sums.jsonl --repeats 4",
    )
    init.epilog = (
        f"{init.epilog}\n         ajet-console init passive my_app --server http://gpu-box:10086\n"
        "What is not given is asked for in a terminal, and else has its default. A file that is "
        "there already is kept, unless --force is given."
    )
    init.add_argument("kind", choices=tuple(KINDS), help="; ".join(KINDS.values()))
    init.add_argument("folder", metavar="DIR", type=Path, help="where to; made when missing")
    init.add_argument("--server", metavar="URL", help="swarm server (else AJET_SWARM_URL)")
    init.add_argument("--model", help="model it trains (else REMOTE_MODEL_PATH)")
    init.add_argument("--repeats", type=int, metavar="N", help="episodes of a task; 4")
    init.add_argument("--batch", type=int, metavar="N", help="tasks of a policy update; 8")
    init.add_argument("--dataset", metavar="FILE", help="JSONL, Parquet or Hugging Face folder")
    init.add_argument("--yes", action="store_true", help="ask nothing, take the defaults")
    init.add_argument("--force", action="store_true", help="replace files that are there")
    compat = command(
        commands,
        "compat",
        "console.cli.folders.compat:compat",
        "Write a package `ajet`, so that a script for AgentJet runs with unchanged imports",
        "compat ./shim && PYTHONPATH=./shim python train.py",
    )
    compat.epilog = (
        f"{compat.epilog}\nIt needs the Python that ajet-console is installed in. An `ajet` that "
        "something else wrote is left as it is, and nothing is written where AgentJet is installed."
    )
    compat.add_argument(
        "folder", metavar="DIR", help="the package goes into DIR/ajet; made when missing"
    )
    compat.add_argument("--json", action="store_true", help="what was written, as JSON")
    debug = command(
        commands,
        "debug-episode",
        "console.cli.folders.debug_episode:debug",
        "Run one episode of a folder with its full trace: every call, tokens, reward, traceback",
        "debug-episode my_agent --item 3 --watch",
    )
    debug.epilog = (
        f"{debug.epilog}\nNothing is trained on it. Without a server it starts the embedded engine "
        "and leaves it running.\nExit code: 0 it has a reward, 1 it has none, 2 wrong use."
    )
    debug.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="else the current one"
    )
    debug.add_argument("--item", default="0", metavar="N", help="place in the dataset, or id; 0")
    debug.add_argument("--swarm-url", metavar="URL", help="swarm server (else AJET_SWARM_URL)")
    debug.add_argument("--train", action="store_true", help="a train episode, which counts")
    debug.add_argument("--watch", action="store_true", help="again after each change of a file")
    debug.add_argument("--json", action="store_true", help="the trace as JSON")
    debug.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="end it after so many seconds"
    )
