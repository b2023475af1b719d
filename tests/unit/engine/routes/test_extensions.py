"""What `/ajetc/info` reports of the hardware and of the job."""

from dataclasses import asdict

from engine.interface import Hardware
from engine.server.job import JobSupport
from engine.torch.recipe import recipe
from tests.support.engine.client import Driver
from tests.support.engine.fake_policy import FakePolicy

CARD = Hardware(
    device="cuda:0 NVIDIA H100 80GB HBM3",
    dtype="bfloat16",
    memory_used=20 * 10**9,
    memory_total=80 * 10**9,
    memory_estimate=21 * 10**9,
    slots=64,
    tokens_per_second=None,
    look_tokens_per_second=35.0,
    sampling_seconds=0.0,
    update_seconds=None,
    sync_seconds=None,
)


async def test_the_hardware_of_the_policy_is_reported_while_it_is_open(idle: Driver) -> None:
    assert (await idle.get("/ajetc/info"))["hardware"] is None
    await idle.start()
    assert (await idle.get("/ajetc/info"))["hardware"] is None
    policy = idle.engine.policy_holder.policy
    assert isinstance(policy, FakePolicy)
    policy.hardware = CARD
    assert (await idle.get("/ajetc/info"))["hardware"] == asdict(CARD)
    await idle.post("/stop_engine")
    assert (await idle.get("/ajetc/info"))["hardware"] is None


async def test_the_log_has_the_notes_of_the_backend_that_runs(idle: Driver) -> None:
    idle.engine.job_support = JobSupport(loads_models=True, model="org/name")
    info = await idle.get("/ajetc/info")
    assert (info["backend"], info["model"]) == ("torch", "org/name")
    await idle.start(model={"path": "other/name"}, lora={"lora_rank": 8})
    log = "\n".join(line["message"] for line in idle.engine.verbose.recent())
    assert "'other/name' is not loaded, the engine was started with --model org/name" in log
    assert "LoRA is ignored" not in log
    job = (await idle.get("/ajetc/info"))["job"]
    assert (job["lora_rank"], job["lora_targets"], job["gpus"]) == (8, [], 1)


async def test_what_a_job_leaves_unset_is_that_of_the_backend(idle: Driver) -> None:
    idle.engine.recipe = recipe(full=False)
    await idle.start(data={"train_batch_size": 2})
    hyper = (await idle.get("/ajetc/info"))["job"]["hyper"]
    own = recipe(full=False)
    assert (hyper["lr"], hyper["epochs"], hyper["kl"]) == (own.lr, own.epochs, own.kl)
