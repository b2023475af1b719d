"""Check of the graphics card, for the torch backend of the embedded engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from console.doctor.finding import CheckContext, Finding, Level
from core.runtime.home import running
from engine.torch.card import (
    Card,
    Device,
    GpuProcess,
    TorchFacts,
    ask_torch,
    processes_text,
    read_driver,
)
from engine.torch.packages import missing, todo

LIMIT = 40.0
"""Time limit in seconds: torch is imported in a child process, which takes long the first time."""
_TORCH_SECONDS = 25.0
_GB = 1e9

ReadCard = Callable[[bool], Card]
"""Reads the card; True imports torch in a child process."""


_card = partial(Finding, "card")


def card(context: CheckContext) -> Sequence[Finding]:
    """Check torch, driver, card and memory; without the torch backend nothing is required."""
    return judge(context, read, missing())


def read(with_torch: bool) -> Card:
    """Read the driver, and torch when it is installed; blocks."""
    facts = ask_torch(_TORCH_SECONDS) if with_torch else TorchFacts()
    return Card(torch=facts, driver=read_driver())


def judge(context: CheckContext, read_card: ReadCard, problems: Sequence[str]) -> list[Finding]:
    """Return the findings of a card.

    Args:
        context: Its settings say whether the torch backend is used.
        read_card: Reads the card.
        problems: Packages of the torch backend that are missing or do not fit.
    """
    own = context.settings
    used = own is not None and own.engine.backend == "torch"
    if problems and not used:
        text = "not checked: the embedded engine uses numpy, and torch is not installed"
        if not any(problem.startswith("torch is missing") for problem in problems):
            text = "not checked: the embedded engine uses numpy"
        return [_card("torch", "ok", text)]
    torch_missing = any(problem.startswith("torch is missing") for problem in problems)
    return list(_findings(_without_own(read_card(not torch_missing), context), problems, used))


def _without_own(card: Card, context: CheckContext) -> Card:
    """Return the card without the process of this home's engine."""
    info = running(context.home, "engine")
    others = tuple(
        process for process in card.driver.processes if info is None or process.pid != info.pid
    )
    return replace(card, driver=replace(card.driver, processes=others))


def _findings(card: Card, problems: Sequence[str], used: bool) -> Iterator[Finding]:
    torch, driver = card.torch, card.driver
    bad: Level = "fail" if used else "warn"
    if problems:
        yield _card("torch", bad, ", ".join(problems), todo())
    if torch.error:
        text = torch.error
        yield _card("torch", bad, text, "Install torch again for your card: " + todo())
    elif torch.version and not problems:
        build = f", for CUDA {torch.cuda_build}" if torch.cuda_build else ""
        yield _card("torch", "ok", f"{torch.version}{build}")
    if driver.error:
        yield _card("driver", bad, f"nvidia-smi: {driver.error}", "Repair the driver")
    if card.driver_too_old:
        text = f"torch for CUDA {torch.cuda_build} cannot use the NVIDIA driver {driver.version}"
        newer = "Install a newer driver, or torch for an older CUDA: " + todo()
        yield _card("driver", bad, text, newer)
    elif driver.version and torch.version and not torch.cuda_build:
        text = f"there is an NVIDIA driver ({driver.version}), but this torch is built without CUDA"
        yield _card("driver", bad, text, todo())
    elif driver.version:
        yield _card("driver", "ok", f"NVIDIA {driver.version}")
    for device in torch.devices or driver.cards:
        yield _device(device, known=bool(torch.devices))
    if torch.version and not torch.error and not torch.devices and not driver.version:
        yield _card("device", "ok", "no GPU: the CPU computes, which is slow")
    if driver.processes:
        yield _in_use(driver.processes)


def _device(device: Device, known: bool) -> Finding:
    text = f"{device.name}, {device.free / _GB:.1f} of {device.total / _GB:.1f} GB free"
    name = f"device {device.index}"
    if known and not device.bfloat16:
        todo = "Train in float32: `--dtype float32`"
        return _card(name, "warn", f"{text}, no bfloat16", todo)
    return _card(name, "ok", f"{text}, bfloat16" if known else text)


def _in_use(processes: Sequence[GpuProcess]) -> Finding:
    todo = "End them, or lower `--max-memory`: their memory is not free for training"
    return _card("in use", "warn", f"the card is in use: {processes_text(processes)}", todo)
