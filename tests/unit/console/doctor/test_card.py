"""What the doctor says about torch, the driver and the card."""

from pathlib import Path

import pytest

from console.doctor import card as checked
from console.doctor.card import judge
from console.doctor.finding import CheckContext, Finding
from core.runtime.home import Home
from core.settings import load
from engine.torch.card import Card, Device, Driver, GpuProcess, TorchFacts

H100 = Device(name="H100", total=80 * 10**9, free=70 * 10**9, bfloat16=True)
GOOD = TorchFacts(version="2.13.0", cuda_build="12.8", cuda=True, devices=(H100,))
DRIVER = Driver(version="570.1", cards=(H100,))


def findings(
    torch: TorchFacts, driver: Driver = DRIVER, *, missing: tuple[str, ...] = (), used: bool = True
) -> dict[str, Finding]:
    backend = "torch" if used else "numpy"
    settings = load(None, {}, {"engine.backend": backend})
    context = CheckContext(home=Home(Path("/none")), settings=settings)
    result = judge(context, lambda with_torch: Card(torch=torch, driver=driver), missing)
    return {one.name: one for one in result}


def test_a_card_that_works() -> None:
    result = findings(GOOD)
    assert {one.level for one in result.values()} == {"ok"}
    assert result["torch"].text == "2.13.0, for CUDA 12.8"
    assert result["driver"].text == "NVIDIA 570.1"
    assert result["device 0"].text == "H100, 70.0 of 80.0 GB free, bfloat16"


def test_without_torch_the_numpy_backend_needs_nothing() -> None:
    (only,) = findings(TorchFacts(), missing=("torch is missing",), used=False).values()
    assert (only.area, only.level) == ("card", "ok")
    assert "torch is not installed" in only.text


def test_missing_packages_fail_when_they_are_used() -> None:
    result = findings(TorchFacts(), missing=("torch is missing", "peft is missing"))
    assert result["torch"].level == "fail"
    assert "pytorch.org" in result["torch"].todo


def test_a_driver_that_is_too_old_is_named_with_the_remedy() -> None:
    old = TorchFacts(version="2.13.0", cuda_build="13.0")
    result = findings(old)["driver"]
    assert result.level == "fail"
    assert "CUDA 13.0 cannot use the NVIDIA driver 570.1" in result.text
    assert "Install a newer driver" in result.todo
    assert findings(old, used=False)["driver"].level == "warn"


def test_a_torch_without_cuda_beside_a_driver() -> None:
    result = findings(TorchFacts(version="2.13.0"))
    assert "built without CUDA" in result["driver"].text


def test_a_machine_without_a_card() -> None:
    result = findings(TorchFacts(version="2.13.0"), Driver())
    assert result["device"].level == "ok"
    assert "slow" in result["device"].text


def test_a_broken_torch_and_a_broken_driver_are_reported() -> None:
    result = findings(TorchFacts(error="signal 11"), Driver(error="no devices"))
    assert (result["torch"].level, result["driver"].level) == ("fail", "fail")


def test_a_card_without_bfloat16_names_the_other_formats() -> None:
    plain = Device(name="T4", total=16 * 10**9, free=15 * 10**9)
    result = findings(TorchFacts(version="2.13.0", cuda_build="12", cuda=True, devices=(plain,)))
    assert result["device 0"].level == "warn"
    assert "--dtype float32" in result["device 0"].todo


def test_processes_on_the_card_are_listed() -> None:
    holders = tuple(GpuProcess(pid=pid, used=pid * 10**6, name="python") for pid in range(1, 7))
    result = findings(GOOD, Driver(version="570.1", processes=holders))["in use"]
    assert result.level == "warn"
    assert "pid 1 python 1 MB" in result.text
    assert "and 2 more" in result.text


def test_the_check_reads_this_machine_without_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "missing", lambda: [])
    monkeypatch.setattr(checked, "ask_torch", lambda seconds: GOOD)
    monkeypatch.setattr(checked, "read_driver", lambda: DRIVER)
    result = checked.card(CheckContext(home=Home(tmp_path), settings=load(None, {})))
    assert [one.name for one in result] == ["torch", "driver", "device 0"]
