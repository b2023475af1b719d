"""The dataset card: what is in the files, where it comes from, and what was left out."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ajet_swarm.common.text import plural
from console.export.features import yaml_features
from console.export.figures import GroupFigures, share_text
from console.export.format import ExportFormat, columns_of
from console.export.maker import RowMaker
from console.export.records import utc
from console.export.write import ExportFiles
from core.state import TEXT_CAP

if TYPE_CHECKING:
    from console.export.run import ExportOptions

_LISTED = 20


def dataset_card(
    options: "ExportOptions",
    where: str,
    *,
    chosen: ExportFormat,
    target: ExportFiles,
    maker: RowMaker,
    figures: GroupFigures,
    redacted: Counter[str] | None,
    damaged: int,
) -> str:
    """Return the text of the card.

    It has no time of its own, so that the same export has the same card.

    Args:
        options: What is exported.
        where: The filter without secrets; empty for none.
        chosen: The format.
        target: The files.
        maker: Counts of rows and of what was left out.
        figures: Figures of the exported groups.
        redacted: Number of replaced secrets by kind; None if nothing was redacted.
        damaged: Number of rows of the journal that cannot be read.
    """
    lines = [
        *_front_matter(chosen, target),
        f"# Export `{options.format}`",
        "",
        f"{chosen.about}.",
        "",
        "| | |",
        "|---|---|",
        f"| groups | {figures.groups} |",
        f"| answers in these groups | {figures.answers} |",
        *(
            f"| rows in `{path.name}` | {maker.written[side]} |"
            for side, path in target.files.items()
        ),
        f"| filter | {_code(where) if where else 'none'} |",
        f"| split | {options.split if len(options.split.names) > 1 else 'none'} |",
        f"| only judged by a person | {'yes' if options.only_human else 'no'} |",
        f"| raters | {'by name' if options.names else 'by pseudonym'} |",
        f"| rated by a person | {figures.rated} |",
        f"| corrected by a person | {figures.corrected} |",
    ]
    if figures.groups:
        lines.append(f"| judged | {utc(figures.first)} to {utc(figures.last)} |")
    lines += [
        *_compared(where),
        *_rewards(figures),
        *_agreement(figures),
        *_counts("Servers", "groups", figures.servers),
        *_counts("Weights", "answers", figures.weights),
        *_counts("Versions of the rewards", "groups", figures.versions),
        *_counts("Left out", "groups or answers", maker.left_out, most=len(maker.left_out)),
        *_damage(damaged),
        *_redaction(redacted),
    ]
    return "\n".join(lines) + "\n"


def _front_matter(chosen: ExportFormat, target: ExportFiles) -> list[str]:
    """Return the YAML with which `load_dataset(FOLDER)` finds files and types."""
    if not target.is_folder:
        return []
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for side, path in target.files.items():
        lines += [f"  - split: {side}", f"    path: {path.name}"]
    if columns := columns_of(chosen):
        lines += ["dataset_info:", "  features:", *yaml_features(columns)]
    return [*lines, "---", ""]


def _compared(where: str) -> list[str]:
    """Return what the filter compares."""
    if not where:
        return []
    text = f"The filter compares the first {TEXT_CAP:,} characters of a question or answer."
    return ["", text]


def _rewards(figures: GroupFigures) -> list[str]:
    rewards = figures.rewards
    if not rewards.count:
        return ["", "## Rewards", "", "No answer has a reward."]
    lines = [
        "",
        "## Rewards",
        "",
        f"{rewards.count} rewards, {rewards.low:.4g} to {rewards.high:.4g}, mean "
        f"{rewards.mean:.4f}, standard deviation {rewards.deviation:.4f}.",
        "",
        "| reward | answers |",
        "|---|---|",
    ]
    for tenth in range(-1, 11):
        label = "below 0" if tenth < 0 else "above 1" if tenth > 9 else f"{tenth / 10:.1f} to"
        if 0 <= tenth <= 9:
            label += f" {(tenth + 1) / 10:.1f}"
        if rewards.tenths[tenth] or 0 <= tenth <= 9:
            lines.append(f"| {label} | {rewards.tenths[tenth]} |")
    return lines


def _agreement(figures: GroupFigures) -> list[str]:
    lines = ["", "## Agreement of person and automatic reward", ""]
    if not figures.compared:
        return [*lines, "No rated group has a single best answer by both."]
    chance = figures.expected / figures.compared
    lines.append(
        f"Same best answer: {share_text(figures.agreed, figures.compared)}; {chance:.0%} by chance."
    )
    if figures.blind:
        text = share_text(figures.blind_agreed, figures.blind)
        lines.append(f"Of the votes without sight of the rewards: {text}.")
    return lines


def _counts(title: str, unit: str, counts: Counter[str], most: int = _LISTED) -> list[str]:
    if not counts:
        return []
    lines = ["", f"## {title}", "", f"| | {unit} |", "|---|---|"]
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines += [
        f"| {_code(name) if name else 'unknown'} | {count} |" for name, count in ordered[:most]
    ]
    if len(ordered) > most:
        rest = sum(count for _, count in ordered[most:])
        lines.append(f"| {len(ordered) - most} others | {rest} |")
    return lines


def _damage(damaged: int) -> list[str]:
    if not damaged:
        return []
    return ["", "## Damage", "", f"{damage_text(damaged)}."]


def damage_text(damaged: int) -> str:
    """Return the warning of an export of a damaged journal.

    Args:
        damaged: Number of rows that cannot be read.
    """
    rows = plural(damaged, "row")
    return f"{rows} of the journal cannot be read: groups, votes and corrections may be missing"


def redacted_text(redacted: Mapping[str, int]) -> str:
    """Return the numbers of replaced secrets: `2 e-mail addresses, 1 token`."""
    return ", ".join(
        plural(count, kind, f"{kind}es" if kind.endswith("s") else "")
        for kind, count in sorted(redacted.items())
    )


def _redaction(redacted: Mapping[str, int] | None) -> list[str]:
    lines = ["", "## Redaction", ""]
    if redacted is None:
        return [*lines, "Nothing was redacted: the texts are as in the journal."]
    if not redacted:
        return [*lines, "No key, token, password or e-mail address was recognised."]
    return [*lines, f"Replaced by `[redacted: ...]`: {redacted_text(redacted)}."]


def _code(text: str) -> str:
    """Return a text as it is, on one line of a table."""
    plain = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{plain}`"
