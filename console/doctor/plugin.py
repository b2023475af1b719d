"""Check of the plug-ins of other packages: each is loaded."""

from collections.abc import Sequence
from typing import Any

from console.doctor.finding import CheckContext, Finding
from core.plugins import PluginReport, Plugins


def plugins(context: CheckContext) -> Sequence[Finding]:
    """Load each plug-in and name its package; one that fails is named with its cause."""
    findings = [_finding(report) for group in _groups() for report in group.reports()]
    return findings or [Finding("plug-ins", "packages", "ok", "none installed")]


def _groups() -> tuple[Plugins[Any], ...]:
    """Return all groups; their modules are imported here because no other check needs them."""
    from console.export.format import PLUGINS as EXPORT_FORMATS
    from mock.targets.plugins import PLUGINS as MOCK_TARGETS
    from proxy.rewards.part import PLUGINS as REWARD_PARTS
    from proxy.trackers.sink import PLUGINS as TRACKER_SINKS

    return (
        REWARD_PARTS,
        EXPORT_FORMATS,
        TRACKER_SINKS,
        MOCK_TARGETS,
    )


def _finding(report: PluginReport) -> Finding:
    of = f"{report.group.rpartition('.')[2].replace('_', ' ')}, {report.package or 'no package'}"
    if report.fault:
        return Finding("plug-ins", report.name, "fail", f"{of}: {report.fault}", report.todo)
    return Finding("plug-ins", report.name, "ok", f"{of} ({report.place})")
