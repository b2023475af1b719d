"""The card as torch and nvidia-smi report it; neither is needed here."""

import json
import os
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from engine.torch import card
from engine.torch.card import (
    Card,
    Device,
    Driver,
    GpuProcess,
    TorchFacts,
    parse_driver,
    parse_torch,
    torch_facts,
)

GPUS = (
    "0, GPU-aa, NVIDIA H100 80GB HBM3, 570.86.15, 81559, 1200, 80000\n"
    "1, GPU-bb, Odd, Name, 570.86.15, x, [N/A]\n"
)
APPS = "GPU-aa, 123, 20480, /usr/bin/python3\nGPU-bb, 77, [N/A], [Not Found]\nno line\n"


def fake_torch(**parts: Any) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_available=lambda: parts.get("cuda", False),
        device_count=lambda: 1,
        mem_get_info=lambda index: (70 * 10**9, 80 * 10**9),
        get_device_capability=lambda index: parts.get("capability", (9, 0)),
        get_device_name=lambda index: "H100",
    )
    mps = SimpleNamespace(
        recommended_max_memory=lambda: 10**10, driver_allocated_memory=lambda: 10**9
    )
    available = SimpleNamespace(is_available=lambda: parts.get("mps", False))
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(cuda=parts.get("build"), hip=None),
        cuda=cuda,
        mps=mps,
        backends=SimpleNamespace(mps=available),
    )


def test_facts_of_a_cuda_card() -> None:
    facts = torch_facts(fake_torch(cuda=True, build="12.8"))
    assert facts == TorchFacts(
        version="2.13.0",
        cuda_build="12.8",
        cuda=True,
        devices=(Device(name="H100", total=80 * 10**9, free=70 * 10**9, bfloat16=True),),
    )
    (old,) = torch_facts(fake_torch(cuda=True, build="12.8", capability=(7, 5))).devices
    assert not old.bfloat16


def test_facts_of_a_mac_and_of_a_cpu() -> None:
    (device,) = torch_facts(fake_torch(mps=True)).devices
    assert (device.name, device.free) == ("Apple GPU", 9 * 10**9)
    assert torch_facts(fake_torch()).devices == ()


def test_the_output_of_nvidia_smi_is_read() -> None:
    driver = parse_driver(GPUS, APPS)
    assert driver.version == "570.86.15"
    assert driver.cards[0] == Device(
        name="NVIDIA H100 80GB HBM3", index=0, total=81559 << 20, free=80000 << 20, uuid="GPU-aa"
    )
    assert driver.processes == (
        GpuProcess(pid=123, used=20480 << 20, name="python3", uuid="GPU-aa"),
        GpuProcess(pid=77, used=None, name="[Not Found]", uuid="GPU-bb"),
    )
    assert parse_driver("", "") == Driver()


def test_a_driver_that_torch_cannot_use_is_too_old() -> None:
    driver = Driver(version="470.1")
    assert Card(torch=TorchFacts(version="2.13", cuda_build="12.8"), driver=driver).driver_too_old
    for torch in (TorchFacts(version="2.13"), TorchFacts(cuda_build="12.8", cuda=True)):
        assert not Card(torch=torch, driver=driver).driver_too_old


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "words"),
    [
        (-11, "", "", "(signal 11)"),
        (1, "", "Traceback\nOSError: libcudart.so", "(exit code 1): OSError: libcudart.so"),
        (0, "not JSON", "", "importing torch failed (exit code 0)"),
        (0, "", "", "importing torch failed"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_fact(
    code: int, stdout: str, stderr: str, words: str
) -> None:
    assert words in parse_torch(code, stdout, stderr).error


def test_lines_in_front_of_the_facts_are_skipped() -> None:
    text = 'A warning\n{"version": "2.13.0", "devices": [{"name": "H100"}]}\n'
    facts = parse_torch(0, text, "")
    assert (facts.version, facts.devices[0].name, facts.error) == ("2.13.0", "H100", "")


def smi(monkeypatch: pytest.MonkeyPatch, result: str | Exception) -> None:
    def run(command: Sequence[str], **options: Any) -> SimpleNamespace:
        assert options["timeout"] > 0
        if isinstance(result, Exception):
            raise result
        return SimpleNamespace(stdout=result)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("nvidia-smi"), ""),
        (subprocess.CalledProcessError(9, "x", "couldn't communicate\n", ""), "communicate"),
        (subprocess.TimeoutExpired("nvidia-smi", 5), "timed out"),
    ],
    ids=["missing", "failed", "silent"],
)
def test_nvidia_smi_that_fails_is_a_fact(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    smi(monkeypatch, error)
    driver = card.read_driver()
    assert driver.version == ""
    assert words in driver.error
    assert bool(driver.error) == bool(words)


def test_a_torch_that_does_not_answer_is_a_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, subprocess.TimeoutExpired("python", 1))
    assert "not imported within 1 s" in card.ask_torch(1).error


def test_the_program_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        card, "read_card", lambda: Card(torch=TorchFacts(version="2.13"), driver=Driver())
    )
    assert card.main([]) == 0
    assert json.loads(capsys.readouterr().out)["torch"]["version"] == "2.13"


def test_the_child_without_torch_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert card.main(["--torch"]) == 0
    assert parse_torch(0, capsys.readouterr().out, "") == TorchFacts()


def test_the_other_processes_on_the_card_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GpuProcess(pid=os.getpid(), used=1)
    others = [GpuProcess(pid=pid, used=2_000_000, name="python") for pid in range(3, 9)]
    monkeypatch.setattr(card, "read_driver", lambda: Driver(processes=(own, *others)))
    text = card.in_use("cuda:0", "")
    assert text.startswith("pid 3 python 2 MB, pid 4 ")
    assert text.endswith(" and 2 more")
    assert card.in_use("cpu", "") == ""
    monkeypatch.setattr(card, "read_driver", lambda: Driver(processes=(own,)))
    assert card.in_use("cuda", "") == ""


@pytest.mark.parametrize("uuid", ["GPU-bb", "bb"])
def test_processes_on_the_other_cards_are_not_named(
    monkeypatch: pytest.MonkeyPatch, uuid: str
) -> None:
    monkeypatch.setattr(card, "read_driver", lambda: parse_driver(GPUS, APPS))
    assert card.in_use("cuda:0", uuid) == "pid 77 [Not Found]"
    for unknown in ("", "MIG-cc"):
        text = card.in_use("cuda:0", unknown)
        assert text.startswith("pid 123 python3 21475 MB, pid 77 [Not Found] (on all cards: ")
