"""Texts of the modules that the runner writes into its worktree."""

PROBE_FILE = "ajet_swarm/planted_probe.py"
"""Below a package of the product, so that every process that runs the product can import it."""
PROBE_CALL = '__import__("ajet_swarm.planted_probe", fromlist=["reach"]).reach({name!r})'
PROBE = """
import os

SEEN = set()


def reach(fault):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if not test or (os.getpid(), fault, test) in SEEN:
        return
    SEEN.add((os.getpid(), fault, test))
    file = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{{fault}}\\t{{test}}\\n".encode())
    os.close(file)
"""

PLUGIN_FILE = "planted_plugin.py"
PLUGIN_FOLDER = "PLANTED_FOLDER"
"""Variable that names the folder of what the plugin reads and writes."""
PLUGIN = f"""
import os
from pathlib import Path

FOLDER = Path(os.environ[{PLUGIN_FOLDER!r}])


def pytest_collection_modifyitems(items):
    if (FOLDER / "selected").exists():
        chosen = set((FOLDER / "selected").read_text().split("\\n"))
        items[:] = [item for item in items if item.nodeid in chosen]


def pytest_collectreport(report):
    if report.failed:
        note("failed", report.nodeid)


def pytest_runtest_logreport(report):
    if report.failed:
        note("failed", report.nodeid)
    note("ran", f"{{report.duration:.4f}}\\t{{report.nodeid}}")


def note(name, text):
    with (FOLDER / name).open("a") as file:
        file.write(text + "\\n")
"""
