"""The file of the rewards: its meaning, its faults, its edits, and its arithmetic."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.common.errors import AjetError
from core.events import Part
from core.scoring.advantage import RewardError, advantages, is_dead, spread
from proxy.rewards.model.file import DEFAULT_TEXT, ModelFault, default_model, load, parse
from proxy.rewards.model.source import ComposedSource, change, edited
from proxy.rewards.model.spec import NothingApplies, PartSpec, RewardModel, Weigher, combine
from proxy.rewards.part import PartValue
from proxy.rewards.source import Score

PLAIN = """\
# mine
parts:
  length: {weight: 0.3, ideal: 80}   # not too long
  # the form
  form:
    kind: format
    must_not:
      - As an AI
    gate: true
  relevance:
recent: 20
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rewards.yaml"


def test_the_built_in_model_weighs_as_its_text_says() -> None:
    model = default_model()
    assert [part.name for part in model.parts if part.gate] == [
        "degeneration",
        "finished",
        "refusal",
    ]
    reference = model.named("reference")
    assert (reference.kind, reference.share, reference.line) == ("reference", 0.8, 8)
    assert reference.settings == {"sums": True}
    length = model.named("length")
    assert (length.weight, dict(length.settings)) == (0.4, {"by_query": True})


def test_a_file_in_both_styles() -> None:
    model = parse(PLAIN, None)
    assert [(part.name, part.kind, part.weight, part.gate) for part in model.parts] == [
        ("length", "length", 0.3, False),
        ("form", "format", 1.0, True),
        ("relevance", "relevance", 1.0, False),
    ]
    assert model.recent == 20
    assert [part.line for part in model.parts] == [3, 5, 10]


@pytest.mark.parametrize(
    ("text", "line", "field", "result"),
    [
        ("", 0, "", "empty"),
        ("parts", 1, "", "lines"),
        ("parts: [1]", 1, "parts", "lines"),
        ("recent: 5", 1, "parts", "no parts"),
        ("prats:\n  length:", 1, "prats", "Did you mean `parts`?"),
        ("parts:\n  lenght: {weight: 1}", 2, "parts.lenght", "Did you mean `length`?"),
        ("parts:\n  a:\n    kind: formt", 3, "parts.a.kind", "Did you mean `format`?"),
        ("parts:\n  length:\n    wieght: 1", 3, "parts.length.wieght", "Did you mean `weight`?"),
        ("parts:\n  length:\n    weight: heavy", 3, "parts.length.weight", "a number"),
        ("parts:\n  length: {weight: .nan}", 2, "parts.length.weight", "a number"),
        ("parts:\n  length: {weight: 1e400}", 2, "parts.length.weight", "a number"),
        ("parts:\n  length: {weight: true}", 2, "parts.length.weight", "a number"),
        ("parts:\n  length: {share: 2}", 2, "parts.length.share", "0 to 1"),
        ("parts:\n  length: {share: 0.5, weight: 1}", 2, "parts.length.share", "or a share"),
        ("parts:\n  length: {gate: 1}", 2, "parts.length.gate", "true or false"),
        ("parts:\n  length: {enabled: maybe}", 2, "parts.length.enabled", "true or false"),
        ("parts:\n  length: 0.5", 2, "parts.length", "lines"),
        ("parts:\n  length:\n  length:", 3, "parts.length", "twice"),
        ("parts:\n  length: {gate: true}", 2, "parts", "no part that is on has a weight"),
        ("parts:\n  length: {enabled: false}", 2, "parts", "no part that is on has a weight"),
        ("parts:\n  length: {weight: 0}", 2, "parts", "no part that is on has a weight"),
        ("parts:\n  'a b': {kind: length}", 2, "parts.a b", "not the name"),
        ("parts:\n  length:\nrecent: -1", 3, "recent", "0 to 1000"),
        ("parts:\n  length:\nrecent: 1.5", 3, "recent", "whole"),
        ("parts:\n  length: {\n", 3, "", "not YAML"),
        ("parts:\n\tlength:", 2, "", "not YAML"),
        ("parts: &a\n  length: {ideal: *a}", 2, "parts.length.ideal", "not a text"),
        ("parts:\n  format: {schema: !!python/object:os.system x}", 2, "parts.format.schema", ""),
        ("parts:\n  format: {must: 2020-01-01}", 2, "parts.format.must", "not a text"),
        ("\x00", 0, "", "not YAML"),
    ],
)
def test_a_fault_names_its_place(text: str, line: int, field: str, result: str) -> None:
    with pytest.raises(ModelFault) as caught:
        parse(text, Path("/x/rewards.yaml"))
    fault = caught.value
    assert (fault.line, fault.field) == (line, field)
    assert result in str(fault)
    assert str(fault).startswith("/x/rewards.yaml")


def test_all_faults_are_reported_at_once_each_with_its_place(file: Path) -> None:
    file.write_text(
        "prats: 1\n"
        "parts:\n"
        "  lenght: {weight: 1}\n"
        "  form:\n"
        "    kind: format\n"
        "    weight: heavy\n"
        "    mats: x\n"
        "    json: perhaps\n"
        "  length: {ideal: -5, width: x, gate: 1}\n"
        "  fine: {kind: relevance}\n"
        "recent: -1\n"
    )
    with pytest.raises(ModelFault) as caught:
        load(file)
    places = [
        (1, "prats"),
        (3, "parts.lenght"),
        (6, "parts.form.weight"),
        (7, "parts.form.mats"),
        (8, "parts.form.json"),
        (9, "parts.length.gate"),
        (9, "parts.length.ideal"),
        (9, "parts.length.width"),
        (11, "recent"),
    ]
    assert [(fault.line, fault.field) for fault in (caught.value, *caught.value.more)] == places
    lines = str(caught.value).splitlines()
    assert [text.split(": ")[:2] for text in lines] == [
        [f"{file}:{line}", field] for line, field in places
    ]
    assert caught.value.cause.startswith("9 faults: prats: it is unknown")
    assert " | line 8: parts.form.json: " in caught.value.cause
    assert caught.value.cause.endswith(" | 1 more")


async def test_faults_of_settings_are_reported_at_once_too(file: Path) -> None:
    file.write_text(
        "parts:\n"
        "  form:\n"
        "    kind: format\n"
        "    json: perhaps\n"
        "    schema_file: missing.json\n"
        "  length: {ideal: -5, width: x}\n"
        "  fine: {kind: relevance}\n"
    )
    source = ComposedSource(file)
    await source.start()
    error = source.health().error
    await source.close()
    assert (error.file, error.line) == (str(file), 4)
    assert error.cause.startswith("3 faults: parts.form.json: `json` cannot be 'perhaps'")
    assert "line 6: parts.length.ideal: " in error.cause
    assert "line 6: parts.length.width: " in error.cause


def test_an_alias_bomb_is_refused_as_a_setting() -> None:
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9)]
    inner = "\n".join(f"      {line}" for line in lines)
    with pytest.raises(ModelFault, match=r"not a text|no setting"):
        parse(f"parts:\n  format:\n    schema:\n{inner}\n", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "result"),
    [(b"\xff\xfe\x00", "UTF-8"), pytest.param(b"#" * (2 << 20), "larger", id="large")],
)
def test_texts_that_are_not_models_are_refused(
    file: Path, tmp_path: Path, data: bytes, result: str
) -> None:
    file.write_bytes(data)
    with pytest.raises(ModelFault, match=result):
        load(file)
    with pytest.raises(ModelFault, match="cannot be read"):
        load(tmp_path / "missing.yaml")


# --- weighing -----------------------------------------------------------------------------------


def weigh(specs: list[PartSpec], *values: float | None) -> Score:
    columns = [None if value is None else [PartValue(value, "r")] for value in values]
    return Weigher(specs).scores([0], columns)[0]


def test_weights_that_do_not_apply_are_shared() -> None:
    specs = [PartSpec("a", "length", 1.0), PartSpec("b", "length", 3.0), PartSpec("c", "length", 4)]
    assert weigh(specs, 1.0, 1.0, 1.0).reward == 8.0
    score = weigh(specs, 1.0, 0.0, None)
    assert score.reward == pytest.approx(2.0)
    assert [part.weight for part in score.parts] == pytest.approx([2.0, 6.0])


def test_shares_are_taken_first_and_penalties_remain() -> None:
    specs = [
        PartSpec("s", "reference", share=0.6),
        PartSpec("t", "tools", share=0.5),
        PartSpec("a", "length", 2.0),
        PartSpec("p", "latency", -1.0),
    ]
    assert [part.weight for part in weigh(specs, 1, 1, 1, 1).parts] == pytest.approx(
        [1.2, 0.4, 0.4, -0.2]
    )
    assert [part.weight for part in weigh(specs, None, None, 1, 1).parts] == [2.0, -1.0]
    assert weigh(specs[:2], 1.0, 1.0).reward == pytest.approx(1.0)
    assert weigh(specs[:2], None, 0.5).reward == pytest.approx(0.5)


def test_gates_multiply_and_weightless_parts_show() -> None:
    specs = [
        PartSpec("g", "finished", gate=True),
        PartSpec("a", "length", 1.0),
        PartSpec("z", "latency", 0.0),
    ]
    score = weigh(specs, 0.5, 0.8, 0.9)
    assert score.reward == pytest.approx(0.4)
    assert [(part.name, part.weight) for part in score.parts] == [("g", 1), ("a", 1), ("z", 0)]


@pytest.mark.parametrize("values", [(1.0, None, 0.5), (None, None, None), (None, None, 0.3)])
def test_without_a_weight_that_applies_there_is_no_reward(values: tuple[float | None, ...]) -> None:
    specs = [
        PartSpec("g", "finished", gate=True),
        PartSpec("a", "length", 1.0),
        PartSpec("z", "latency", 0.0),
    ]
    with pytest.raises(NothingApplies, match="answer 1"):
        weigh(specs, *values)


# --- changing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "field", "value", "line"),
    [
        ("length", "weight", 0.5, "  length: {weight: 0.5, ideal: 80}   # not too long"),
        ("length", "gate", True, "  length: {gate: true, weight: 0.3, ideal: 80}   # not too long"),
        ("form", "gate", False, "    gate: false"),
        ("form", "weight", 2.0, "    weight: 2"),
        ("relevance", "enabled", False, "  relevance: {enabled: false}"),
    ],
)
def test_a_change_leaves_the_rest_of_the_file(
    file: Path, tmp_path: Path, part: str, field: str, value: float | bool, line: str
) -> None:
    file.write_text(PLAIN)
    file.chmod(0o640)
    model = change(file, [(part, field, value)])
    assert load(file) == model
    assert getattr(model.named(part), field) == value
    before, after = PLAIN.splitlines(), file.read_text().splitlines()
    assert line in after
    assert len(set(before) - set(after)) <= 1
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["rewards.yaml"]


def test_windows_line_ends_and_quotes_survive() -> None:
    text = 'parts:\r\n  form:\r\n    kind: "format"\r\n    must: ["a # b"]\r\n'
    changed = edited(text, "form", "weight", 0.25)
    assert changed == f"{text}    weight: 0.25\r\n"


def test_a_change_without_a_file_creates_it_from_the_built_in_model(file: Path) -> None:
    change(file, [("reference", "weight", 0.7)])
    assert file.read_text() == DEFAULT_TEXT.replace("share: 0.8", "share: 0.7")


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [("nobody", "weight", 1.0), ("reference", "weight", 3.0), ("length", "weight", 1e99)],
)
def test_an_invalid_change_writes_nothing(file: Path, part: str, field: str, value: float) -> None:
    with pytest.raises(AjetError):
        change(file, [(part, field, value)])
    assert not file.exists()


def test_several_changes_are_one_save_or_none(file: Path) -> None:
    with pytest.raises(AjetError, match="nobody"):
        change(file, [("length", "weight", 0.5), ("nobody", "weight", 1.0)])
    assert not file.exists()
    model = change(file, [("length", "weight", 0.0), ("relevance", "weight", 0.9)])
    assert load(file) == model
    weights = {part.name: part.weight for part in model.parts}
    assert (weights["length"], weights["relevance"]) == (0.0, 0.9)


def test_swapped_weights_need_no_order(file: Path) -> None:
    """Each step alone would leave no weight at all; together they do not."""
    file.write_text("parts:\n  length: {weight: 1}\n  relevance: {weight: 0}\n")
    model = change(file, [("length", "weight", 0), ("relevance", "weight", 1)])
    assert [part.weight for part in model.parts] == [0, 1]


def test_the_last_weight_is_not_switched_off(file: Path) -> None:
    file.write_text("parts:\n  length:\n")
    with pytest.raises(ModelFault, match="no part that is on"):
        change(file, [("length", "enabled", False)])
    assert file.read_text() == "parts:\n  length:\n"


def test_an_aliased_part_is_not_changed(file: Path) -> None:
    text = "parts:\n  a: &x {kind: length}\n  b: *x\n"
    file.write_text(text)
    with pytest.raises(AjetError, match="alias"):
        change(file, [("a", "weight", 0.5)])
    assert file.read_text() == text


def test_a_model_knows_its_parts() -> None:
    model = RewardModel((PartSpec("a", "length"), PartSpec("b", "latency", enabled=False)))
    assert [one.name for one in model.active] == ["a"]
    assert model.named("c") is None


# --- the guide ----------------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[5] / "docs" / "guide" / "rewards.md").read_text()


def test_the_example_file_of_the_guide_is_valid(tmp_path: Path) -> None:
    text = GUIDE.partition("```yaml\n")[2].partition("```")[0]
    model = parse(text, tmp_path / "rewards.yaml")
    assert [part.kind for part in model.parts][-3:] == ["judge", "hook", "reference"]


numbers = st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=8)


def test_combine_multiplies_gates_with_the_weighted_sum() -> None:
    parts = [
        Part("a", 0.5, 0.4),
        Part("b", 1.0, 0.6),
        Part("g", 0.5, gate=True),
        Part("h", 0.5, gate=True),
        Part("shown", 9.0, 0.0),
    ]
    assert combine(parts) == pytest.approx(0.25 * 0.8)


def test_combine_without_gates_is_the_sum() -> None:
    assert combine([Part("a", -1.0), Part("b", 0.25)]) == -0.75


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_combine_names_the_part_that_is_not_a_number(bad: float) -> None:
    with pytest.raises(RewardError, match="part odd"):
        combine([Part("a", 1.0), Part("odd", bad)])


def test_combine_refuses_an_overflow_of_usable_parts() -> None:
    with pytest.raises(RewardError, match="combine to"):
        combine([Part("a", 1e9, 1e9)])


def test_advantages_by_hand() -> None:
    assert advantages([1.0, 0.0], 0.0) == pytest.approx([1.0, -1.0])
    assert advantages([1.0, 0.0], 0.5) == pytest.approx([0.5, -0.5])
    assert advantages([0.0, 0.0, 0.0, 1.0], 0.0)[3] == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("rewards", [[], [0.7], [0.1] * 3, [0.3, 0.1 + 0.2]])
@pytest.mark.parametrize("damping", [0.0, 1e-6])
def test_dead_groups_have_no_advantage(rewards: list[float], damping: float) -> None:
    assert is_dead(rewards)
    assert advantages(rewards, damping) == [0.0] * len(rewards)


def test_a_small_difference_is_not_dead() -> None:
    assert not is_dead([0.5, 0.5001])
    assert spread([0.5, 0.5001]) == pytest.approx(0.0001)
    assert spread([0.5]) == 0.0


def test_advantages_refuse_nan() -> None:
    with pytest.raises(RewardError, match="reward 1"):
        advantages([0.0, math.nan], 0.0)


@pytest.mark.slow
@given(numbers, st.floats(0, 10))
def test_advantages_are_finite_centred_and_keep_the_order(
    rewards: list[float], damping: float
) -> None:
    result = advantages(rewards, damping)
    assert all(map(math.isfinite, result))
    assert abs(math.fsum(result)) < 1e-4 * len(result)
    if not is_dead(rewards):
        assert result[rewards.index(max(rewards))] == max(result) > 0
