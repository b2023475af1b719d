"""Reads the graphics card, its driver and its memory: `python -m engine.torch.card` prints JSON.

Importing torch takes seconds and can crash on a broken driver, so a child process does it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

TORCH_SECONDS = 60.0
"""Time limit of the child that imports torch; the first import after an installation is slow."""
SMI_SECONDS = 5.0
"""Time limit of one call of nvidia-smi."""
_SHOWN = 4
"""Maximum number of processes in a text."""
_GPU_FIELDS = "index,uuid,name,driver_version,memory.total,memory.used,memory.free"
_APP_FIELDS = "gpu_uuid,pid,used_memory,process_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device that torch can use."""

    name: str
    """As torch reports it."""
    index: int = 0
    total: int = 0
    """Bytes of memory; 0 if unknown."""
    free: int = 0
    """Bytes of memory that no process has; 0 if unknown."""
    bfloat16: bool = False
    """Whether it computes with bfloat16 in hardware."""
    uuid: str = ""
    """As nvidia-smi reports it, `GPU-...`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """What torch reports of this machine."""

    version: str = ""
    """Empty when torch is not installed."""
    cuda_build: str = ""
    """CUDA version that torch was built for; empty for a build without CUDA."""
    cuda: bool = False
    mps: bool = False
    devices: tuple[Device, ...] = ()
    error: str = ""
    """Why torch could not be asked; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of an NVIDIA card."""

    pid: int
    used: int | None = None
    """Bytes; None where the driver does not report it."""
    name: str = ""
    uuid: str = ""
    """Of the card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What nvidia-smi reports."""

    version: str = ""
    """Empty without an NVIDIA driver."""
    cards: tuple[Device, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    error: str = ""
    """Why nvidia-smi failed although it is installed; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The devices of this machine and their state."""

    torch: TorchFacts
    driver: Driver

    @property
    def driver_too_old(self) -> bool:
        """Whether there is an NVIDIA driver and a CUDA build of torch that cannot use it."""
        return bool(self.driver.version and self.torch.cuda_build and not self.torch.cuda)


def read_card(seconds: float = TORCH_SECONDS) -> Card:
    """Read the card; blocks.

    Args:
        seconds: Time limit of the child process that imports torch.
    """
    return Card(torch=ask_torch(seconds), driver=read_driver())


def ask_torch(seconds: float = TORCH_SECONDS) -> TorchFacts:
    """Ask torch in a child process; never raises for a broken installation."""
    command = [sys.executable, "-m", "engine.torch.card", "--torch"]
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, cwd=root
        )
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"torch was not imported within {seconds:g} s")
    except OSError as error:
        return TorchFacts(error=f"no process could be started: {error}")
    return parse_torch(done.returncode, done.stdout, done.stderr)


def parse_torch(code: int, stdout: str, stderr: str) -> TorchFacts:
    """Return the facts that the child process printed.

    Args:
        code: Its exit code; negative for a signal.
        stdout: Its last line is JSON.
        stderr: Its last line says why it failed.
    """
    last = (stderr.strip().splitlines() or [""])[-1][:200]
    try:
        if code != 0:
            raise ValueError
        return msgspec.json.decode(stdout.strip().splitlines()[-1], type=TorchFacts)
    except (ValueError, IndexError):
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return TorchFacts(error=f"importing torch failed ({ended}){': ' if last else ''}{last}")


def read_driver() -> Driver:
    """Read driver, cards and processes of nvidia-smi; empty where it is not installed."""
    try:
        gpus = _smi(f"--query-gpu={_GPU_FIELDS}")
        apps = _smi(f"--query-compute-apps={_APP_FIELDS}")
    except FileNotFoundError:
        return Driver()
    except subprocess.CalledProcessError as error:
        text = f"{error.stdout or ''}\n{error.stderr or ''}".strip().splitlines() or [str(error)]
        return Driver(error=text[0][:200])
    except (OSError, subprocess.SubprocessError) as error:
        return Driver(error=str(error)[:200])
    return parse_driver(gpus, apps)


def in_use(device: str, uuid: str) -> str:
    """Return the processes on an NVIDIA card in words, without this one; empty when none is known.

    Args:
        device: Name of torch.
        uuid: Of the card, as torch reports it: its number is not that of nvidia-smi where
            CUDA_VISIBLE_DEVICES is set. If nvidia-smi has no such card, the processes of all
            cards are returned, and the text says so.
    """
    if not device.startswith("cuda"):
        return ""
    driver = read_driver()
    others = [process for process in driver.processes if process.pid != os.getpid()]
    card = f"GPU-{uuid.removeprefix('GPU-')}"
    if any(device.uuid == card for device in driver.cards):
        return processes_text([other for other in others if other.uuid == card])
    text = processes_text(others)
    several = len(driver.cards) > 1
    return f"{text} (on all cards: which of them is {device} is unknown)" if several else text


def processes_text(processes: Sequence[GpuProcess]) -> str:
    """Return processes in words: `pid 7 python 900 MB`; the first ones when there are many."""
    names = [
        f"pid {process.pid}"
        + (f" {process.name}" if process.name else "")
        + (f" {process.used / 1e6:.0f} MB" if process.used is not None else "")
        for process in processes[:_SHOWN]
    ]
    more = f" and {len(processes) - _SHOWN} more" if len(processes) > _SHOWN else ""
    return f"{', '.join(names)}{more}"


def parse_driver(gpus: str, apps: str) -> Driver:
    """Return what nvidia-smi printed as CSV without heads and units; memory is in MiB there.

    Args:
        gpus: A line for each card.
        apps: A line for each process that computes.
    """
    rows = [_cells(line, 7) for line in gpus.splitlines() if line.strip()]
    cards = tuple(
        Device(
            name=row[2],
            index=_whole(row[0]) or 0,
            total=_bytes(row[4]) or 0,
            free=_bytes(row[6]) or 0,
            uuid=row[1],
        )
        for row in rows
    )
    processes = []
    for row in (_cells(line, 4) for line in apps.splitlines() if line.strip()):
        pid, name = _whole(row[1]), Path(row[3]).name[:60]
        if pid is not None:
            processes.append(GpuProcess(pid=pid, used=_bytes(row[2]), name=name, uuid=row[0]))
    return Driver(version=rows[0][3] if rows else "", cards=cards, processes=tuple(processes))


def _smi(query: str) -> str:
    return subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=SMI_SECONDS,
        check=True,
    ).stdout


def _cells(line: str, count: int) -> list[str]:
    """Return `count` cells; the last one contains what is left, commas included."""
    cells = [cell.strip() for cell in line.split(",", count - 1)]
    return cells + [""] * (count - len(cells))


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _bytes(mebibytes: str) -> int | None:
    number = _whole(mebibytes)
    return None if number is None else number << 20


def torch_facts(torch: Any) -> TorchFacts:
    """Return what the imported module reports of this machine."""
    cuda = bool(torch.cuda.is_available())
    mps = bool(torch.backends.mps.is_available())
    devices = []
    if cuda:
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            major, _ = torch.cuda.get_device_capability(index)
            devices.append(
                Device(
                    name=torch.cuda.get_device_name(index),
                    index=index,
                    total=total,
                    free=free,
                    bfloat16=major >= 8 or torch.version.hip is not None,
                )
            )
    elif mps:
        total = int(torch.mps.recommended_max_memory())
        used = int(torch.mps.driver_allocated_memory())
        devices.append(
            Device(name="Apple GPU", total=total, free=max(0, total - used), bfloat16=True)
        )
    return TorchFacts(
        version=str(torch.__version__),
        cuda_build=str(torch.version.cuda or ""),
        cuda=cuda,
        mps=mps,
        devices=tuple(devices),
    )


def main(args: Sequence[str]) -> int:
    """Print the card as JSON; with `--torch` only what torch reports, asked in this process."""
    if list(args) != ["--torch"]:
        sys.stdout.write(json.dumps(asdict(read_card()), indent=2) + "\n")
        return 0
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        facts = TorchFacts()
    else:
        facts = torch_facts(torch)
    sys.stdout.write(json.dumps(asdict(facts)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
