"""`progress probe-set`: write a probe set from the held-out rows of a dataset."""

from pathlib import Path

from click import IntRange

from ajet_swarm.common.errors import UsageError
from console.cli.common import say
from console.cli.options import COLUMNS, Args, Range, argument, option, takes
from console.cli.output import output

MOST = 64
"""Prompts of the file unless `--most` gives another number."""
HELD_OUT = 0.1
"""Share of the rows on the held-out side, as of `run mock --split`."""
_SHARE, _COUNT = Range(0, 1, min_open=True), IntRange(1)


@takes(
    argument("dataset", "file or folder", type=Path),
    option("--out", "FILE", "file to write", type=Path, required=True),
    COLUMNS,
    option("--held-out", "SHARE", f"share ({HELD_OUT:g})", type=_SHARE, default=HELD_OUT),
    option("--most", "N", f"maximum number of prompts ({MOST})", type=_COUNT, default=MOST),
    notes=(
        "The held-out side is that of `run mock --split`: train with `run mock DATASET --split "
        "train`, and set `probe.file` to the file. Rows with several user messages, a persona, "
        "tools or images are left out.",
    ),
)
def probe_set(args: Args) -> int:
    """Write the file.

    Raises:
        AjetError: the dataset cannot be read, has no held-out row, or the file exists.
    """
    from core.events import ProbePrompt
    from mock.dataset import open_dataset
    from mock.dataset.columns import read_columns
    from mock.dataset.rows import Row, side_of
    from proxy.evaluation.probe_set import write_prompts
    from proxy.held_out import key_of

    if args.out.exists():
        raise UsageError("the file exists", str(args.out), "Name another, or delete it")
    prompts: dict[str, ProbePrompt] = {}
    with open_dataset(args.dataset.expanduser(), read_columns(args.columns or "")) as dataset:
        while dataset.records.scan():
            pass
        for position in dataset.order("probe set", seed=0):
            row = dataset.row(position)
            if not isinstance(row, Row) or row.then or row.persona or row.tools:
                continue
            if row.messages[-1] != {"role": "user", "content": row.query}:
                continue  # an image, or a conversation that awaits the answer to a tool's result
            if side_of(row, args.held_out) != "held-out":
                continue
            prompt = ProbePrompt(
                id=row.row_id,
                prompt=row.query,
                before=row.messages[:-1],
                reference=row.reference or "",
            )
            prompts.setdefault(key_of(prompt), prompt)
            if len(prompts) == args.most:
                break
    if not prompts:
        raise UsageError(
            "no usable row is held out", str(args.dataset), "Give a larger share with --held-out"
        )
    count = f"{len(prompts)} prompt{'' if len(prompts) == 1 else 's'}"
    if args.dry_run:
        say(output().plan(f"would write {count} to {args.out}"))
        return 0
    write_prompts(args.out, list(prompts.values()))
    say(f"{count} written to {args.out}: set probe.file to it, and train with --split train")
    return 0
