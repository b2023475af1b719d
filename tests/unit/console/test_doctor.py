"""The doctor about torch and the card, judges and plug-ins."""

import asyncio
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from console.doctor import card as checked
from console.doctor import plugin as plugin
from console.doctor.card import judge
from console.doctor.finding import CheckContext, Finding
from console.doctor.judge import judges
from console.doctor.remote import hooks
from core.plugins import TRACKER_SINKS, Plugins
from core.runtime.home import Home
from core.settings import load
from engine.torch.card import Card, Device, Driver, GpuProcess, TorchFacts
from tests.support.scripted.judge import ScriptedJudge

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


T4 = Device(name="T4", total=16 * 10**9, free=15 * 10**9)
WITHOUT_BFLOAT16 = TorchFacts(version="2.13.0", cuda_build="12", cuda=True, devices=(T4,))
HELD = tuple(GpuProcess(pid=pid, used=pid * 10**6, name="python") for pid in range(1, 7))
OLD = TorchFacts(version="2.13.0", cuda_build="13.0")
PLAIN = TorchFacts(version="2.13.0")


@pytest.mark.parametrize(
    ("torch", "driver", "name", "level", "words"),
    [
        (GOOD, DRIVER, "torch", "ok", "2.13.0, for CUDA 12.8"),
        (GOOD, DRIVER, "driver", "ok", "NVIDIA 570.1"),
        (GOOD, DRIVER, "device 0", "ok", "H100, 70.0 of 80.0 GB free, bfloat16"),
        (OLD, DRIVER, "driver", "fail", "CUDA 13.0 cannot use the NVIDIA driver 570.1"),
        (OLD, DRIVER, "driver", "fail", "Install a newer driver"),
        (PLAIN, DRIVER, "driver", "fail", "built without CUDA"),
        (PLAIN, Driver(), "device", "ok", "slow"),
        (TorchFacts(error="signal 11"), Driver(), "torch", "fail", "signal 11"),
        (GOOD, Driver(error="no devices"), "driver", "fail", "no devices"),
        (WITHOUT_BFLOAT16, DRIVER, "device 0", "warn", "--dtype float32"),
        (GOOD, Driver(version="570.1", processes=HELD), "in use", "warn", "pid 1 python 1 MB"),
        (GOOD, Driver(version="570.1", processes=HELD), "in use", "warn", "and 2 more"),
    ],
)
def test_torch_driver_and_card(
    torch: TorchFacts, driver: Driver, name: str, level: str, words: str
) -> None:
    found = findings(torch, driver)[name]
    assert found.level == level
    assert words in f"{found.text} {found.todo}"
    if torch is OLD:
        assert findings(torch, driver, used=False)[name].level == "warn"


def test_missing_packages_fail_when_they_are_used() -> None:
    result = findings(TorchFacts(), missing=("torch is missing", "peft is missing"))
    assert result["torch"].level == "fail"
    assert "pytorch.org" in result["torch"].todo


def test_without_torch_the_numpy_backend_needs_nothing() -> None:
    (only,) = findings(TorchFacts(), missing=("torch is missing",), used=False).values()
    assert (only.area, only.level) == ("card", "ok")
    assert "torch is not installed" in only.text


def test_the_check_reads_this_machine_without_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "missing", lambda: [])
    monkeypatch.setattr(checked, "ask_torch", lambda seconds: GOOD)
    monkeypatch.setattr(checked, "read_driver", lambda: DRIVER)
    result = checked.card(CheckContext(home=Home(tmp_path), settings=load(None, {})))
    assert [one.name for one in result] == ["torch", "driver", "device 0"]


Write = Callable[..., CheckContext]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(*lines: str, **flags: str) -> CheckContext:
        (tmp_path / "rewards.yaml").write_text("\n".join(("parts:", *lines)) + "\n")
        dotted = {name.replace("__", "."): value for name, value in flags.items()}
        return CheckContext(home=Home(tmp_path), settings=load(None, {}, dotted))

    return made


async def only(context: CheckContext) -> Finding:
    (result,) = await judges(context)
    return result


async def test_a_working_judge_passes(write: Write) -> None:
    async with ScriptedJudge() as judge:
        result = await only(
            write(f"  helpful: {{kind: judge, url: '{judge.url}', model: judge-1}}")
        )
        assert (result.area, result.name, result.level) == ("judges", "helpful", "ok")
        assert "judge-1 at" in result.text
        assert (judge.listed, judge.calls) == (1, [])


async def test_only_active_judges_are_checked(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-xxx")
    async with ScriptedJudge(key="right") as judge:
        start = f"kind: judge, url: '{judge.url}'"
        result = await judges(
            write(
                "  length: {}",
                f"  refused: {{{start}, model: judge-1}}",
                f"  placeholder: {{{start}, key_env: A_KEY}}",
                f"  off: {{{start}, enabled: false}}",
            )
        )
    assert [(one.name, one.level) for one in result] == [
        ("refused", "fail"),
        ("placeholder", "fail"),
    ]
    assert "401" in result[0].text
    assert "placeholder" in result[1].text
    assert result[1].todo
    assert "sk-xxx" not in result[1].text


async def test_a_missing_and_a_hanging_judge_fail(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedJudge() as judge:
        url = judge.url
    result = await only(write(f"  helpful: {{kind: judge, url: '{url}', model: x}}"))
    assert result.level == "fail"
    assert "no answer from" in result.text
    monkeypatch.setattr("console.doctor.judge.PATIENCE", 0.1)
    async with ScriptedJudge() as judge:
        judge.models, judge.forever = None, "hang"
        result = await only(write(f"  helpful: {{kind: judge, url: '{judge.url}', model: x}}"))
    assert (result.level, result.text) == ("fail", f"{judge.url}: no answer in 0.1 s")


async def test_a_judge_on_the_policys_own_server_is_reported(write: Write) -> None:
    line = "  helpful: {kind: judge, url: own}"
    result = await only(write(line))
    assert result.level == "fail"
    assert "own" in result.text
    async with ScriptedJudge() as judge:
        result = await only(write(line, upstream__url=judge.url))
    assert result.level == "ok"


async def test_a_damaged_or_missing_file_fails(write: Write, tmp_path: Path) -> None:
    result = await only(write("  helpful: {kind: judge}"))
    assert result.level == "fail"
    assert "rewards.yaml:2" in result.text
    missing = write("  length: {}", rewards__file=str(tmp_path / "none.yaml"))
    assert "there is no file" in (await only(missing)).text


async def test_without_a_judge_there_is_no_finding(write: Write, tmp_path: Path) -> None:
    assert not await judges(write("  length: {}"))
    assert not await judges(CheckContext(home=Home(tmp_path / "x"), settings=load(None, {}, {})))
    assert not await judges(CheckContext(home=Home(tmp_path), settings=None))


@pytest.mark.slow
async def test_hooks_of_the_model_file_are_checked(write: Write, tmp_path: Path) -> None:
    broken = tmp_path / "mine"
    broken.mkdir()
    (broken / "on_compute_relative_reward.py").write_text("def broken(:\n")
    (result,) = await hooks(write("  mine: {kind: hook, folder: mine}", "  length: {}"))
    assert (result.area, result.level) == ("hooks", "fail")
    assert str(broken) in result.text
    (result,) = await hooks(write("  length: {}"))
    assert (result.level, "rewards.yaml has no hooks" in result.text) == ("ok", True)


def test_each_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = CheckContext(home=Home(tmp_path), settings=None)
    monkeypatch.setattr(plugin, "_groups", lambda: ())
    (none,) = asyncio.run(asyncio.to_thread(plugin.plugins, context))
    assert (none.level, none.text) == ("ok", "none installed")
    points = [
        EntryPoint("good", "math:pi", TRACKER_SINKS),
        EntryPoint("bad", "no_such_module:SINK", TRACKER_SINKS),
    ]
    group = Plugins(TRACKER_SINKS, float, find=lambda name: points)
    monkeypatch.setattr(plugin, "_groups", lambda: (group,))
    good, bad = plugin.plugins(context)
    assert (good.area, good.name, good.level) == ("plug-ins", "good", "ok")
    assert good.text.startswith("tracker sinks, ")
    assert (bad.name, bad.level) == ("bad", "fail")
    assert "ModuleNotFoundError" in bad.text
    assert bad.todo
