"""Write `requirements-hashed.txt`: the pins of an install, each with the hashes of its wheels.

    .venv/bin/python -m docs.hashed_pins

The versions are those of `constraints.txt`; the hashes are of the wheels that pip takes from the
index it is set up for, on Linux (x86_64, aarch64) and macOS (arm64) with Python 3.11 to 3.13.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
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
"""Platform tags of one kind of machine each; pip adds the older ones."""
HEAD = """\
# Written by `python -m docs.hashed_pins`: the pins of constraints.txt that an install needs.
# pip install --require-hashes -r requirements-hashed.txt && pip install --no-deps .
"""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Normalized name -> version of each pin in a requirements file."""
    return {str(canonicalize_name(name)): version for name, version in _PIN.findall(text)}


def needed() -> set[str]:
    """Normalized names of all that the program and its extra `data` need, themselves and below."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["data"]]
    found: dict[str, set[str]] = {}
    while wanted:
        one = Requirement(wanted.pop())
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        name = str(canonicalize_name(one.name))
        if name not in found or not one.extras <= found[name]:
            found.setdefault(name, set()).update(one.extras)
            below = [text for text in requires(name) or () if _applies(text, one.extras)]
            wanted += [text.partition(";")[0] for text in below]
    return set(found)


def _applies(text: str, extras: Iterable[str]) -> bool:
    marker = Requirement(text).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def wheels(wanted: str, tags: tuple[str, ...], python: str) -> dict[str, str]:
    """Normalized name -> SHA-256 of the wheel that pip takes for these tags."""
    with tempfile.TemporaryDirectory() as folder:
        listed, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        listed.write_text(wanted, encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--only-binary=:all:", "--python-version", python]
        command += ["--target", folder, "--report", str(report), "-r", str(listed)]
        command += [f"--platform={tag}" for tag in tags]
        subprocess.run(command, check=True)
        found = json.loads(report.read_bytes())["install"]
    return {
        str(canonicalize_name(one["metadata"]["name"])): one["download_info"]["archive_info"][
            "hashes"
        ]["sha256"]
        for one in found
    }


def main() -> None:
    """Ask pip for each machine and Python version, and write the file."""
    pinned = pins(CONSTRAINTS.read_text(encoding="utf-8"))
    versions = {name: pinned[name] for name in sorted(needed())}
    wanted = "\n".join(f"{name}=={version}" for name, version in versions.items())
    hashes: dict[str, set[str]] = defaultdict(set)
    for tags in PLATFORMS:
        for python in PYTHONS:
            for name, digest in wheels(wanted, tags, python).items():
                hashes[name].add(digest)
    lines = [HEAD.rstrip()]
    for name, version in versions.items():
        ends = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(hashes[name]))
        lines.append(f"{name}=={version}{ends}")
    HASHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
