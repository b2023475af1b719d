"""Generator of `requirements-hashed.txt`: the pins of an install with the hashes of their wheels.

    .venv/bin/python -m docs.hashed_pins

The versions are those of `constraints.txt`; the hashes are those of the wheels that pip takes from
its configured index, on Linux (x86_64, aarch64) and macOS (arm64) with Python 3.11 to 3.13.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
HASHED = ROOT / "requirements-hashed.txt"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = (
    *((f"manylinux_2_28_{cpu}", f"manylinux_2_17_{cpu}") for cpu in ("x86_64", "aarch64")),
    ("macosx_12_0_arm64",),
    ("macosx_14_0_arm64",),
)
"""Platform tags of each kind of machine; pip adds the older ones."""
HEAD = """\
# Written by `python -m docs.hashed_pins`: the pins of constraints.txt that an install needs.
# pip install --require-hashes -r requirements-hashed.txt && pip install --no-deps .
"""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Return normalized name -> version of each pin in a requirements file."""
    return {str(canonicalize_name(name)): version for name, version in _PIN.findall(text)}


def dependencies() -> set[str]:
    """Return the normalized names of all dependencies and theirs, with the extra `data`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["data"]]
    pending: list[tuple[str, set[str]]] = [(text, set()) for text in needed]
    extras: dict[str, set[str]] = {}
    while pending:
        text, asked = pending.pop()
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *asked)):
            continue
        name = str(canonicalize_name(requirement.name))
        if name not in extras or not requirement.extras <= extras[name]:
            extras.setdefault(name, set()).update(requirement.extras)
            pending += [(text, requirement.extras) for text in requires(name) or ()]
    return set(extras)


def wheels(pinned: str, tags: tuple[str, ...], python: str) -> dict[str, str]:
    """Return normalized name -> SHA-256 of the wheel that pip selects.

    Args:
        pinned: Requirements, one pin per line.
        tags: Platform tags.
        python: Version of Python.
    """
    with tempfile.TemporaryDirectory() as folder:
        listed, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        listed.write_text(pinned, encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--only-binary=:all:", "--python-version", python]
        command += ["--target", folder, "--report", str(report), "-r", str(listed)]
        command += [f"--platform={tag}" for tag in tags]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_bytes())["install"]
    hashes = {}
    for install in installs:
        name = str(canonicalize_name(install["metadata"]["name"]))
        hashes[name] = install["download_info"]["archive_info"]["hashes"]["sha256"]
    return hashes


def main() -> None:
    """Run pip for each machine and Python version, and write the file."""
    constraints = pins(CONSTRAINTS.read_text(encoding="utf-8"))
    versions = {name: constraints[name] for name in sorted(dependencies())}
    pinned = "\n".join(f"{name}=={version}" for name, version in versions.items())
    hashes: dict[str, set[str]] = defaultdict(set)
    for tags in PLATFORMS:
        for python in PYTHONS:
            for name, digest in wheels(pinned, tags, python).items():
                hashes[name].add(digest)
    lines = [HEAD.rstrip()]
    for name, version in versions.items():
        ends = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(hashes[name]))
        lines.append(f"{name}=={version}{ends}")
    HASHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
