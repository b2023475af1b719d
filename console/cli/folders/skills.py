"""`skills`: write the instructions with which coding agents use this program."""

from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import say, say_json
from console.cli.options import Args, argument, flag, takes
from console.cli.output import output

SKILLS = Path(__file__).parents[2] / "skills"
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
        if args.dry_run:
            say(output().plan(f"would write {target}"))
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        except OSError as error:
            raise AjetError(f"cannot be written: {error.strerror or error}", str(target)) from error
        say(f"wrote {target}")
    if args.json:
        say_json({"files": [str(target) for target in sources]})
    return 0
