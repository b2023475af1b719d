"""Environments of the peers: pinned by version and hash, one for each.

    python -m bench.peers.install [NAME ...]        install (the bench does it too)
    python -m bench.peers.install --pin [NAME ...]  write the pins of the versions in VERSIONS

The pins are those of Linux on x86_64 with Python 3.11, without addresses. LiteLLM 1.82.7, 1.82.8
and 1.107.0 were reported compromised: never use them.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).parent / "pins"
ENVIRONMENTS: Final = Path(__file__).parents[2] / ".venv-peers"
VERSIONS: Final = {
    "litellm": "litellm[proxy]==1.106.0",
    "vllm-router": "vllm-router==0.1.17",
    "sglang-router": "sglang-router==0.3.2",
    "portkey": "@portkey-ai/gateway@1.15.2",
}
_READY = ".pins"


def _pip_pins(name: str) -> str:
    """Return the requirements with hashes that pip selects on this machine."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    report = subprocess.run(
        [*command, "--report", "-", VERSIONS[name]], check=True, capture_output=True, text=True
    )
    lines = []
    for one in json.loads(report.stdout)["install"]:
        facts = one["metadata"]
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{facts['name']}=={facts['version']} --hash=sha256:{digest}\n")
    return "".join(sorted(lines, key=str.lower))


def pin(name: str) -> None:
    """Write the pins of a peer."""
    if name != "portkey":
        (PINS / f"{name}.txt").write_text(_pip_pins(name), encoding="utf-8")
        return
    folder = PINS / name
    folder.mkdir(exist_ok=True)
    only = ("--package-lock-only", "--omit-lockfile-registry-resolved")
    _npm(folder, "install", *only, VERSIONS[name])
    file = folder / "package-lock.json"
    lock = json.loads(file.read_text(encoding="utf-8"))
    for package in lock["packages"].values():
        package.pop("funding", None)
    file.write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")


def install(name: str) -> Path:
    """Return the folder of a peer's environment, made from the pins if they have changed."""
    folder = ENVIRONMENTS / name
    source = PINS / name if name == "portkey" else PINS / f"{name}.txt"
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    pins = "".join(file.read_text(encoding="utf-8") for file in files)
    ready = folder / _READY
    if ready.is_file() and ready.read_text(encoding="utf-8") == pins:
        return folder
    print(f"Installing {VERSIONS[name]}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "portkey":
        for file in files:
            shutil.copy(file, folder)
        _npm(folder, "ci", "--ignore-scripts")
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", source], check=True)
    ready.write_text(pins, encoding="utf-8")
    return folder


def _npm(folder: Path, *args: str) -> None:
    command = ["npm", *args, "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, check=True, cwd=folder)


def main() -> None:
    """Install or pin the peers that are named, else all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(VERSIONS))
    parser.add_argument("--pin", action="store_true", help="write the pins")
    args = parser.parse_args()
    for name in args.names or VERSIONS:
        if args.pin:
            pin(name)
        else:
            install(name)


if __name__ == "__main__":
    main()
