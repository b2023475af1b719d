"""Format, exact, numeric: the parts with an expected text."""

import contextlib
import gc
import time
import weakref
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from proxy.rewards.part import KINDS, PartAbstained, SettingError
from proxy.rewards.parts.patterns import MAX_SEARCHED, MAX_SECONDS, bounded, pattern
from proxy.rewards.parts.reference import agreement, is_right
from proxy.rewards.parts.schema import Schema
from tests.unit.proxy.rewards.conftest import group
from tests.unit.proxy.rewards.parts.test_text_parts import made, part_input, values

PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "additionalProperties": False,
}


def test_the_value_is_the_share_of_rules_met() -> None:
    part = made("format", must=["please"], must_not=["As an AI"], match=[r"^\d+\."])
    texts = ("1. Please do", "as an ai, please", "nothing")
    assert values(part, part_input(group(*texts))) == pytest.approx([1.0, 1 / 3, 1 / 3])


def test_all_or_nothing_and_case() -> None:
    part = made("format", must=["Please"], must_not=["AI"], case=True, all=True)
    assert values(part, part_input(group("Please", "please", "Please, AI"))) == [1.0, 0.0, 0.0]


def test_an_answer_that_only_calls_tools_has_no_form() -> None:
    calls = {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    assert values(made("format", must=["x"]), part_input(group(calls, "x"))) == [None, 1.0]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('{"name": "Ada"}', True),
        ('```json\n{"name": "Ada", "age": 36}\n```', True),
        ('{"name": "Ada", "tags": ["a", "b"]}', True),
        ('{"name": ""}', False),
        ('{"name": "ada"}', False),
        ('{"age": 3}', False),
        ('{"name": "Ada", "age": true}', False),
        ('{"name": "Ada", "age": 1e999}', False),
        ('{"name": "Ada", "age": 36.5}', False),
        ('{"name": "Ada", "tags": ["c"]}', False),
        ('{"name": "Ada", "more": 1}', False),
        ("[]", False),
        ("Ada", False),
        ("[" * 5_000, False),
    ],
)
def test_json_is_checked_against_a_schema(text: str, good: bool) -> None:
    assert values(made("format", schema=PERSON), part_input(group(text))) == [float(good)]


def test_a_schema_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "array", "minItems": 1}')
    part: Any = KINDS["format"].build("f", {"schema_file": "s.json"}, tmp_path)
    assert part.files == (tmp_path / "s.json",)
    assert values(part, part_input(group("[1]", "[]"))) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, [None, 1], [2, True]),
        ({"prefixItems": [{"type": "string"}], "items": False}, [["a"], []], [["a", 1], [1]]),
        ({"propertyNames": {"enum": ["a", "b"]}}, [{"a": 1}, 3], [{"c": 1}]),
        (
            {"patternProperties": {"^n_": {"type": "null"}}, "additionalProperties": False},
            [{"n_a": None}],
            [{"n_a": 1}, {"other": None}],
        ),
        ({"multipleOf": 0.1}, [0.3, 7, "a"], [0.25]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, [0, 9], [3]),
        ({"allOf": [{"minimum": 1}, {"exclusiveMaximum": 5}]}, [1, 4], [0, 5]),
        ({"not": {"type": "string"}}, [1], ["x"]),
        ({"uniqueItems": True}, [[1, 2]], [[1, 1]]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        (False, [], [1, None]),
        (True, [1], []),
    ],
)
def test_words_of_a_schema(schema: Any, good: list[Any], bad: list[Any]) -> None:
    check = Schema(schema, "schema").fault_of
    assert [check(one) for one in good] == [""] * len(good)
    assert all(check(one) for one in bad)


class Circle(BaseModel):
    kind: Literal["circle"]
    at: tuple[float, float]


class Nested(BaseModel):
    kind: Literal["group"]
    shapes: list[Annotated["Circle | Nested", Field(discriminator="kind")]]


PYDANTIC = Nested.model_json_schema()
"""Of a class that holds itself."""
CIRCLE = {"kind": "circle", "at": [1, 2.5]}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"kind": "group", "shapes": [CIRCLE]}, ""),
        ({"kind": "group", "shapes": [CIRCLE, {"kind": "group", "shapes": [CIRCLE]}]}, ""),
        ({"kind": "group", "shapes": [{"kind": "circle", "at": [1, "2"]}]}, "item 2: not of type"),
        ({"kind": "group", "shapes": [{"kind": "circle", "at": [1]}]}, "items: fewer than 2"),
        ({"kind": "group", "shapes": [{"kind": "group", "shapes": [7]}]}, "item 1: "),
        (CIRCLE, "kind: not the expected value"),
    ],
)
def test_a_schema_as_pydantic_writes_it(value: Any, fault: str) -> None:
    check = Schema(PYDANTIC, "schema").fault_of
    for _ in range(2):  # cached data of one check does not reach the next
        result = check(value)
        assert fault in result if fault else result == ""


def test_a_recursive_union_on_a_deep_value_takes_no_exponential_time() -> None:
    tree: Any = {
        "$defs": {
            "L": {"properties": {"x": {"$ref": "#/$defs/T"}}, "required": ["l"]},
            "R": {"properties": {"x": {"$ref": "#/$defs/T"}}, "required": ["r"]},
            "T": {"anyOf": [{"$ref": "#/$defs/L"}, {"$ref": "#/$defs/R"}]},
        },
        "$ref": "#/$defs/T",
    }
    value: Any = {"l": 1}
    for _ in range(60):
        value = {"x": value}
    began = time.process_time()
    assert Schema(tree, "schema").fault_of(value)
    assert time.process_time() - began < 2.0


def test_a_reference_without_a_target_is_refused() -> None:
    for reference in ("#/$defs/Gone", "https://example.org/s.json", "#/$defs/a/0", 7):
        with pytest.raises(SettingError, match=r"\$ref"):
            Schema({"$defs": {"a": {}}, "$ref": reference}, "schema")
    assert Schema({"$ref": "#"}, "schema").fault_of(1) == "# refers to itself"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"$ref": "#/definitions/x"},
        {"properties": {"a": {"tpye": "string"}}},
        {"minimum": "low"},
        {"items": 3},
        {"anyOf": 3},
        {"pattern": "("},
    ],
)
def test_an_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SettingError):
        Schema(schema, "schema")


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|aa)+b", "(.*)*x", "((a{0,})b?)*", r"(\w+\s?)+$", "("]
)
def test_an_expression_that_could_take_for_ever_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        pattern(text, "match")


@pytest.mark.parametrize(
    "text", [r"\d+", "^Answer: .*$", "(foo|bar) baz", r"(?:ab)+", "a++b", "[A-Z][a-z]*", r"x{1,3}"]
)
def test_ordinary_expressions_are_quick_on_anything(text: str) -> None:
    result = pattern(text, "match")
    started = time.process_time()
    for hostile in ("a" * 100_000, "ab" * 50_000, "Answer: " * 20_000):
        result.matches(hostile)
    assert time.process_time() - started < 1.0


def test_both_ends_of_a_long_text_are_searched() -> None:
    filler = "x" * (MAX_SEARCHED * 2)
    matches = pattern("needle", "match").matches
    assert matches(filler + "needle")
    assert matches("needle" + filler)


@pytest.mark.slow
def test_a_match_beyond_the_time_limit_is_aborted() -> None:
    part = made("format", match=["a.*b.*c.*d.*e"])
    result = part_input(group("abcd" * 4_000))
    started = time.process_time()
    with pytest.raises(PartAbstained, match="took more than"):
        part.score(result)
    assert time.process_time() - started < 5
    assert values(part, part_input(group("a b c d e"))) == [1.0]


class Anything:
    """An object that can have a weak reference."""


@pytest.mark.slow
def test_a_limit_that_expires_in_a_callback_aborts_the_next_match() -> None:
    def compute(_: object) -> None:
        until = time.process_time() + 2 * MAX_SECONDS
        while time.process_time() < until:
            sum(range(100_000))

    slow = pattern("a.*b.*c.*d.*e", "match")
    referenced = Anything()
    reference = weakref.ref(referenced, compute)

    def search() -> None:
        nonlocal referenced
        with bounded():
            del referenced
            assert reference() is None
            slow.matches("abcd" * 4_000)

    with pytest.raises(PartAbstained, match="took more than"):
        search()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a b c d e", "abcd" * 4_000], ids=["short", "aborted"])
def test_the_garbage_collector_is_paused_only_while_expressions_match(text: str) -> None:
    collects = []
    with contextlib.suppress(PartAbstained), bounded():
        collects.append(gc.isenabled())
        pattern("a.*b.*c.*d.*e", "match").matches(text)
    assert [*collects, gc.isenabled()] == [False, True]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, ""),
        ({"match": ["("]}, "match"),
        ({"match": [3]}, "match"),
        ({"schema": "x"}, "schema"),
        ({"schema": {"type": "text"}}, "schema"),
        ({"schema_file": "missing.json"}, "schema_file"),
        ({"schema": {}, "schema_file": "x"}, "schema_file"),
        ({"must": {"a": 1}}, "must"),
    ],
)
def test_bad_settings_name_their_field(
    tmp_path: Path, settings: dict[str, Any], field: str
) -> None:
    with pytest.raises(SettingError) as caught:
        KINDS["format"].build("f", settings, tmp_path)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "wanted", "settings", "value"),
    [
        ("Paris.", "paris", {}, 1.0),
        ("It is Paris", "paris", {}, 0.0),
        ("so \\boxed{Paris}", "Paris", {}, 1.0),
        ("so \\boxed{Paris}", "Paris", {"marked": False}, 0.0),
        ("\\boxed{Paris}, no: \\boxed{Rome} or \\boxed{", "Paris", {}, 0.0),
        ("\\boxed{f(\\{x\\})}", "f(\\{x\\})", {}, 1.0),
        ("paris", "Paris", {"strict": True}, 0.0),
        (" Paris\n", "Paris", {"strict": True}, 1.0),
        ("Paris", "steps\n#### Paris", {}, 1.0),
    ],
)
def test_exact(text: str, wanted: str, settings: dict[str, Any], value: float) -> None:
    part = made("exact", **settings)
    assert values(part, part_input(group(text, reference=wanted))) == [value]
    assert part.score(part_input(group(text))) is None


@pytest.mark.parametrize(
    ("text", "settings", "value"),
    [
        ("so it is 42", {}, 1.0),
        ("42 is it, or 43", {}, 0.0),
        ("42 is it, or 43", {"elsewhere": 0.25}, 0.25),
        ("about 42.3", {"tolerance": 0.01}, 1.0),
        ("1e999", {}, 0.0),
        ("none", {}, 0.0),
    ],
)
def test_numeric(text: str, settings: dict[str, Any], value: float) -> None:
    part = made("numeric", **settings)
    assert values(part, part_input(group(text, reference="42"))) == [value]
    assert part.score(part_input(group(text, reference="Paris"))) is None


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        # Relative difference only; whole numbers exactly.
        ("6.6e-34", "1.6e-19", 0.0),
        ("6.6e-34", "0", 0.0),
        ("0.0", "0", 1.0),
        ("1.60000001e-19", "1.6e-19", 1.0),
        ("0.3333333", "1/3", 1.0),
        ("2147483648", "2147483647", 0.0),
        ("2147483647.5", "2147483647", 0.0),
        ("12345678901234567891", "12345678901234567890", 0.0),
        ("12345678901234567890.0", "12345678901234567890", 1.0),
        ("6.02214076e23", "602214076000000000000000", 1.0),
        ("602214100000000000000000", "6.022141e23", 1.0),
        ("1e9999", "1e9998", 0.0),
        ("0/0, 1/0", "0", 0.0),
        ("0.0/0", "0", 0.0),
        pytest.param("9" * 20_000 + "/" + "7" * 20_000, "0", 0.0, id="too many digits"),
        # Only the last box counts.
        ("\\boxed{42}, no: \\boxed{41\\text{ m}}", "42", 0.0),
        ("\\boxed{42}, no: \\boxed{", "42", 0.0),
        ("\\boxed{42}, no: \\boxed{}", "42", 0.0),
        ("#### 42\nno: \\boxed{41}", "42", 0.0),
        ("\\boxed{41}\n#### 42", "42", 1.0),
        ("\\boxed {\\boxed{42}}", "42", 1.0),
        ("\\boxed{42\\text{ m}^2}", "42", 1.0),
        ("42", "so \\boxed{42\\text{ apples}}", 1.0),
        ("0.75", "\\boxed{\\frac{3}{4}}", 1.0),
        # Forms of one number.
        ("1{,}200", "1200", 1.0),
        ("$1\\,200\\,300$", "1200300", 1.0),
        ("$1,\\!200$", "1200", 1.0),
        ("1\u202f200", "1200", 1.0),
        ("1_200", "1200", 1.0),
        ("1,200", "1{,}200", 1.0),
        ("$1.2 \\times 10^{3}$", "1200", 1.0),
        ("1.2 \\cdot 10^3", "1200", 1.0),
        ("1.2 × 10³", "1200", 1.0),
        ("1.2 * 10**3", "1200", 1.0),
        ("-1.6\\times10^{-19}", "-1.6e-19", 1.0),
        ("$10^{-3}$", "0.001", 1.0),
        ("10^2 + 3 = 103", "103", 1.0),
        ("\\frac34", "0.75", 1.0),
        ("\\tfrac{3}4", "0.75", 1.0),
        ("-\\dfrac{ 3 }{4}", "-0.75", 1.0),
        ("\\frac{-3}{4}", "-0.75", 1.0),
        ("2\\frac{1}{2}", "2.5", 1.0),
        ("$90^\\circ$", "90", 1.0),
        ("\\boxed{2\\pi}", "2", 0.0),
        ("\\boxed{2\\sqrt{3}}", "3", 0.0),
        ("\\sqrt[3]{8}", "8", 0.0),
        ("2π", "2", 0.0),
        ("√16 = 4", "4", 1.0),
        ("\\sqrt{16} = 4", "4", 1.0),
        # Commas that separate no thousands.
        ("(0,123)", "123", 1.0),
        ("(1,2000)", "2000", 1.0),
        ("it is _42_", "42", 1.0),
    ],
)
def test_forms_of_a_number(text: str, wanted: str, value: float) -> None:
    given = part_input(group(text, reference=wanted))
    assert values(made("numeric"), given) == [value]
    assert (values(made("reference"), given)[0] == 1.0) == (value == 1.0)


@pytest.mark.parametrize("wanted", ["0,1", "0,123", "1,2000", "3\\pi", "1/0", "too many digits"])
def test_a_reference_that_is_no_number(wanted: str) -> None:
    wanted = wanted.replace("too many digits", "1" + "0" * 10_000)
    assert made("numeric").score(part_input(group("1", reference=wanted))) is None


def test_an_explicit_result_outweighs_the_number_named_first() -> None:
    answers = group("It is 42, or 41.", "It is 42. \\boxed{41}", reference="42")
    assert values(made("reference"), part_input(answers)) == [0.75, 0.25]


@pytest.mark.parametrize(
    ("repeated", "count"),
    [
        ("\\frac ", 20_000),
        (" ", 130_000),
        ("9", 130_000),
        ("1\\,", 20_000),
        ("\\boxed{", 20_000),
        ("\\text{", 20_000),
        ("x^{", 30_000),
        ("1e9999 ", 10_000),
        ("2 \\pi", 20_000),
    ],
)
def test_a_hostile_text_takes_time_linear_in_its_length(repeated: str, count: int) -> None:
    text = "\\frac" + repeated * count + "/7 10^" + repeated * count
    assert values(made("numeric"), part_input(group(text, reference="42"))) == [0.0]


PIECES = (
    *(
        "\\boxed{",
        "}",
        "{",
        "\\frac",
        "{3}",
        "34",
        "0",
        "9" * 50,
        ",",
        "200",
        "{,}",
        "\\,",
        " ",
        "10",
    ),
    *("^", "**", "{-3}", "e", "-", "+", "/", ".", "\\times", "³", "⁻", "\\pi", "√", "\\text{", "m"),
    *("####", "\n", "_", "°", "−", "٣", "½", "minus", "one", "hundred", "1e9999", "e-9999", "0/0"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(text=TEXTS, reference=TEXTS)
def test_any_text_is_compared_with_any_reference(text: str, reference: str) -> None:
    assert 0.0 <= agreement(text, reference).value <= 1.0
    assert is_right(text, reference) in (True, False, None)
