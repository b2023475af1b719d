"""A job looked at before it is sent: where each key stands, which are not known, what cannot be."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from swarm.job import Job, JobError, get, load_job

MAX_CHARS: Final = 1_000_000
"""A whole expanded tree of AgentJet takes about 29 kB."""
MAX_DEPTH: Final = 50

PROMPT: Final = "ajet.data.max_prompt_length"
RESPONSE: Final = "ajet.data.max_response_length"
TURN: Final = "ajet.rollout.max_response_length_in_one_turn"
WINDOW: Final = "ajet.rollout.max_model_len"
LENGTHS: Final = (PROMPT, RESPONSE, TURN, WINDOW)

_TREE: Final = """
experiment_dir project_name experiment_name backbone enable_swarm_mode enable_interchange_server
swarm_mode_sample_collection_method swarm_mode_sample_collection_max_cached_episodes
model.path data.train_batch_size data.max_prompt_length data.max_response_length
rollout.num_repeat rollout.temperature rollout.top_p rollout.top_k rollout.max_env_worker
rollout.max_response_length_in_one_turn rollout.max_model_len rollout.tensor_model_parallel_size
rollout.max_num_seqs rollout.gpu_memory_utilization rollout.compute_madness_checklist
rollout.agent_madness_termination rollout.agent_madness_reward
trainer_common.logger trainer_common.n_gpus_per_node trainer_common.nnodes
trainer_common.algorithm.adv_estimator trainer_common.mini_batch_num trainer_common.ppo_epochs
trainer_common.use_kl_loss trainer_common.use_kl_in_reward trainer_common.kl_penalty_type
trainer_common.kl_loss_coef trainer_common.kl_loss_type trainer_common.total_training_steps
trainer_common.save_freq trainer_common.test_freq trainer_common.checkpoint_base_dir
trainer_common.optim.lr trainer_common.optim.weight_decay trainer_common.optim.grad_clip
trainer_common.optim.betas
trainer_common.val_print_to_markdown_file_path trainer_common.train_print_to_markdown_file_path
lora.lora_rank lora.lora_alpha lora.target_modules lora.load_format lora.layered_summon
context_tracker.timeline_merging_policy.timeline_compare_level
context_tracker.fix_retokenization_drift
embedded.advantage embedded.damping
"""
KNOWN: Final = frozenset(f"ajet.{path}" for path in _TREE.split())
"""Paths of which this program knows what they mean."""
_OPEN: Final = ("ajet.task_reader", "ajet.interchange_server", "ajet.task_judge")
"""Subtrees a server fills by itself."""
_TOP: Final = """
ajet actor_rollout_ref data critic custom_reward_function reward_model sandbox_fusion reward
algorithm trainer global_profiler transfer_queue ray_kwargs defaults hydra
"""
SECTIONS: Final = frozenset(_TOP.split())
"""What stands at the top of a whole tree."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the operator should know; the job can be sent all the same."""

    text: str
    line: int = 0
    """Counted from 1; 0 when it is about no line."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A job that can be sent."""

    job: Job
    notices: tuple[Notice, ...]
    lines: Mapping[str, int]
    """Dotted path -> the line it stands on, from 1."""


def check_job(text: str, where: str = "job") -> Checked:
    """Read a job and find what is wrong or odd in it.

    Args:
        text: The YAML.
        where: What to call it in errors: a path.

    Raises:
        JobError: it cannot be sent; names the line and the key.
    """
    lines = _lines(text, where)
    job = load_job(text, where, lines)
    _check_lengths(job, where, lines)
    return Checked(job, (*_unknown(lines), *_odd(job, lines)), lines)


def _lines(text: str, where: str) -> dict[str, int]:
    """The line of every key; refuses what no job needs and a reader may choke on."""
    if len(text) > MAX_CHARS:
        raise JobError(f"longer than {MAX_CHARS} characters", where, "Is this a job?")
    try:
        _check_events(text, where)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        why = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise JobError(f"not YAML: {why}", place, "Correct the line") from error
    return dict(_walk(node, "", where)) if isinstance(node, yaml.MappingNode) else {}


def _check_events(text: str, where: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark = event.start_mark
        place = f"{where}:{mark.line + 1}" if mark is not None else where
        if isinstance(event, yaml.AliasEvent):
            raise JobError(f"`*{event.anchor}` repeats a part", place, "Write the part out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise JobError(f"nested deeper than {MAX_DEPTH} levels", place)


def _walk(node: yaml.MappingNode, above: str, where: str) -> Iterator[tuple[str, int]]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise JobError("a key is no word", f"{where}:{line}", "Give it a name")
        name = str(key.value)
        if name in seen:
            raise JobError(
                f"`{above}{name}` is there twice, first on line {seen[name]}",
                f"{where}:{line}",
                "Take one of them out",
            )
        seen[name] = line
        yield above + name, line
        if isinstance(value, yaml.MappingNode):
            yield from _walk(value, f"{above}{name}.", where)


def _check_lengths(job: Job, where: str, lines: Mapping[str, int]) -> None:
    prompt, response, turn, window = (get(job, path) for path in LENGTHS)
    if prompt and response and window and prompt + response > window:
        raise JobError(
            f"`{PROMPT}` + `{RESPONSE}` is {prompt + response}, more than `{WINDOW}` {window}",
            _place(where, lines, WINDOW),
            "Prompt and response must fit into the model's window together",
        )
    if response and turn and turn > response:
        raise JobError(
            f"`{TURN}` {turn} is more than `{RESPONSE}` {response}",
            _place(where, lines, TURN),
            "One turn is a part of the response",
        )


def _place(where: str, lines: Mapping[str, int], path: str) -> str:
    return f"{where}:{lines[path]}" if path in lines else where


def _unknown(lines: Mapping[str, int]) -> Iterator[Notice]:
    """Keys this program does not know; below one that is unknown nothing more is named."""
    told: list[str] = []
    for path, line in lines.items():
        if any(path.startswith(f"{one}.") for one in told) or path.startswith(_OPEN):
            continue
        top, _, rest = path.partition(".")
        if top != "ajet":
            if not rest and top not in SECTIONS:
                told.append(path)
                yield Notice(f"unknown key `{top}`{_meant(top, SECTIONS)}", line)
            continue
        if rest and path not in KNOWN and not any(one.startswith(f"{path}.") for one in KNOWN):
            told.append(path)
            yield Notice(f"unknown key `{path}`{_meant(path, KNOWN)}", line)


def _meant(name: str, among: frozenset[str]) -> str:
    last = name.rpartition(".")[2]
    same = [one for one in among if one.rpartition(".")[2] == last]
    found = same if len(same) == 1 else difflib.get_close_matches(name, among, 1, 0.8)
    return f": is `{found[0]}` meant?" if found else ""


def _odd(job: Job, lines: Mapping[str, int]) -> Iterator[Notice]:
    given = [path for path in LENGTHS if get(job, path) is not None]
    if given and len(given) < len(LENGTHS):
        missing = ", ".join(path.rpartition(".")[2] for path in LENGTHS if path not in given)
        yield Notice(
            f"the four lengths belong together; the server's own {missing} will be taken",
            lines.get(given[0], 0),
        )
    beside = [name for name in job if name != "ajet" and name in SECTIONS]
    if beside:
        yield Notice(
            f"beside `ajet` there is {', '.join(map(str, beside[:4]))}: a server refuses values "
            "there that contradict those of `ajet`",
            lines.get(str(beside[0]), 0),
        )
    if (rank := get(job, "ajet.lora.lora_rank", 0)) and isinstance(rank, int) and rank > 0:
        yield from _lora(job, lines)


def _lora(job: Job, lines: Mapping[str, int]) -> Iterator[Notice]:
    wants: tuple[tuple[str, Any], ...] = (
        ("ajet.lora.load_format", "safetensors"),
        ("ajet.lora.layered_summon", True),
    )
    for path, value in wants:
        if get(job, path) != value:
            line = lines.get(path, lines.get("ajet.lora.lora_rank", 0))
            yield Notice(f"with a LoRA rank AgentJet wants `{path}: {str(value).lower()}`", line)
