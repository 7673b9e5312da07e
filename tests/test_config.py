from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import Field

from agent2.config import StrictModel, load_yaml, parse_yaml, read_yaml_text
from agent2.errors import ConfigError


class Inner(StrictModel):
    depth: int = 1


class Outer(StrictModel):
    name: str
    inner: Inner = Field(default_factory=Inner)
    parts: list[Inner] = Field(default_factory=list)


def test_unknown_key_is_named_with_line_and_nearest_name():
    with pytest.raises(ConfigError, match=r"file\.yaml:2: unknown key 'nmae'; did you mean 'name'\?"):
        parse_yaml("name: a\nnmae: b\n", Outer, "file.yaml")


def test_unknown_key_inside_a_list_is_named_with_its_own_line():
    with pytest.raises(ConfigError, match=r"f:4: unknown key 'parts\.1\.dept'; did you mean 'depth'\?"):
        parse_yaml("name: a\nparts:\n- depth: 1\n- dept: 2\n", Outer, "f")


def test_wrong_value_is_named_with_line_and_what_was_given():
    with pytest.raises(ConfigError, match=r"f:3: inner\.depth: .*integer.*'deep'"):
        parse_yaml("name: a\ninner:\n  depth: deep\n", Outer, "f")


def test_missing_key_is_named():
    with pytest.raises(ConfigError, match="key 'name' is missing; add it"):
        parse_yaml("inner: {depth: 2}\n", Outer, "f")


def test_broken_yaml_is_named_with_its_line():
    with pytest.raises(ConfigError, match=r"f:2: not valid YAML"):
        parse_yaml("name: a\n  bad: [\n", Outer, "f")


def test_a_list_at_the_top_is_refused():
    with pytest.raises(ConfigError, match="contains a list, a mapping of keys is needed"):
        parse_yaml("- a\n", Outer, "f")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_yaml(tmp_path / "none.yaml", Outer)


def test_overrides_replace_nested_values():
    record = parse_yaml("name: a\n", Outer, "f", ["inner.depth=7", "name=b"])
    assert (record.name, record.inner.depth) == ("b", 7)


def test_override_of_an_unknown_key_is_refused():
    with pytest.raises(ConfigError, match=r"^--set inner\.dpth=7: unknown key 'inner\.dpth'; did you mean 'depth'\?"):
        parse_yaml("name: a\n", Outer, "f", ["inner.dpth=7"])


@pytest.mark.parametrize("override", ["name", "=3", "name.x=3"])
def test_malformed_override_says_how_to_write_it(override):
    with pytest.raises(ConfigError, match="--set"):
        parse_yaml("name: a\n", Outer, "f", [override])


class Part(StrictModel):
    name: str
    depth: int = 1
    inner: Inner = Field(default_factory=Inner)


class Whole(StrictModel):
    parts: list[Part] = Field(default_factory=list)
    numbers: list[int] = Field(default_factory=list)


PARTS = "numbers: [1]\nparts:\n- name: a\n- name: b.c\n  depth: 2\n"


def test_an_override_names_an_entry_of_a_list_by_its_name():
    whole = parse_yaml(PARTS, Whole, "f", ["parts.b.c.depth=7", "parts.a.inner.depth=8"])
    assert [(part.name, part.depth, part.inner.depth) for part in whole.parts] == [("a", 1, 8), ("b.c", 7, 1)]
    with pytest.raises(ConfigError, match=r"^--set parts\.b\.c\.depth=deep: parts\.1\.depth: .*integer"):
        parse_yaml(PARTS, Whole, "f", ["parts.a.depth=1", "parts.b.c.depth=deep"])
    with pytest.raises(ConfigError, match=r"^f:3: .*unknown key 'parts\.0\.dept'|^--set parts\.a\.dept=1: unknown key"):
        parse_yaml(PARTS, Whole, "f", ["parts.a.dept=1"])


def test_an_override_changes_neither_another_entry_with_the_same_alias_nor_one_whose_name_is_shorter():
    text = "parts:\n- {name: a, inner: &same {depth: 1}}\n- {name: a.inner, inner: *same}\n"
    whole = parse_yaml(text, Whole, "f", ["parts.a.inner.inner.depth=5"])
    assert [part.inner.depth for part in whole.parts] == [1, 5]


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("parts.d.depth=1", r"'parts' is a list; name a key of one of its entries: parts\.a\.KEY, parts\.b\.c\.KEY"),
        ("parts.a=1", "'parts' is a list; name a key"),
        ("numbers.first=1", r"'numbers' is a list of values; set it whole: numbers=\[\.\.\.\]"),
    ],
)
def test_an_override_of_no_entry_of_a_list_is_answered_with_what_it_may_name(override, advice):
    with pytest.raises(ConfigError, match=advice):
        parse_yaml(PARTS, Whole, "f", [override])


@pytest.mark.parametrize("override", ["name=[", "name={a", "name=2020-13-45", "name=\x00"])
def test_an_override_whose_value_is_no_yaml_is_refused(override):
    with pytest.raises(ConfigError, match=r"^--set '[^']*': not valid YAML.*; fix the value after '='$"):
        parse_yaml("name: a\n", Outer, "f", [override])


@pytest.mark.parametrize(
    "text", ["name: 2020-13-45\n", "name: " + "[" * 5000, "? [a]\n: b\n", "name: \x00", "name: &a [*a]\n", "1: 2\n"]
)
def test_text_that_yaml_cannot_turn_into_values_is_refused(text):
    with pytest.raises(ConfigError, match=r"^f"):
        parse_yaml(text, Outer, "f")


def test_a_key_that_comes_twice_is_refused():
    with pytest.raises(ConfigError, match=r"f:4: key 'depth' appears twice"):
        parse_yaml("name: a\ninner:\n  depth: 1\n  depth: 2\n", Outer, "f")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_yaml(path, Outer)


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Circle(StrictModel):
    kind: Literal["circle"]
    radius: int
    colour: Colour = Colour.RED


class Square(StrictModel):
    kind: Literal["square"]
    side: int


class Drawing(StrictModel):
    shapes: list[Annotated[Circle | Square, Field(discriminator="kind")]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("shapes:\n- kind: circle\n  radius: 1\n  colour: gren\n", "f:4: unknown colour 'gren'; did you mean 'green'?"),
        ("shapes:\n- kind: circel\n", "f:2: unknown kind 'circel'; did you mean 'circle'?"),
        ("shapes:\n- kind: square\n  sied: 1\n", "f:3: unknown key 'shapes.0.square.sied'; did you mean 'side'?"),
        ("shapes:\n- kind: circle\n  radius: x\n", "f:3: shapes.0.circle.radius: "),
    ],
)
def test_a_mistake_in_one_kind_of_a_union_has_its_own_line_and_nearest_name(text, sentence):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, Drawing, "f")
    assert sentence in str(caught.value)


def test_a_text_that_was_only_read_knows_the_line_of_every_value_and_what_was_overridden():
    source = read_yaml_text("a:\n  b: 1\nc:\n- x\n- y\n", "f", ["a.d=2"])
    assert source.data == {"a": {"b": 1, "d": 2}, "c": ["x", "y"]}
    spots = [source.spot(place) for place in (("a", "b"), ("c", 1), ("a", "missing"), ("a", "d"))]
    assert spots == ["f:2", "f:5", "f:1", "--set a.d=2"]


def _aliases(depth: int) -> str:
    levels = ["&a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"&a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return f"name: [{', '.join(levels)}]\n"


def test_aliases_may_repeat_values_but_not_multiply_them():
    text = "name: &n first\nparts:\n- &p {depth: 2}\n- *p\ninner: *p\n"
    assert parse_yaml(text, Outer, "f").parts == [Inner(depth=2), Inner(depth=2)]
    with pytest.raises(ConfigError, match=r"^f:1: expands to more than 1000000 values when its aliases"):
        parse_yaml(_aliases(9), Outer, "f")
    with pytest.raises(ConfigError, match=r"f:2: expands to more"):
        parse_yaml("name: a\nparts: &p [*p]\n", Outer, "f")


def test_a_long_value_is_cut_in_the_message_about_it():
    with pytest.raises(ConfigError) as caught:
        parse_yaml(_aliases(5), Outer, "f")
    assert "f:1: name: Input should be a valid string" in str(caught.value)
    assert len(str(caught.value)) < 400


class Budget(StrictModel):
    wall_clock_s: float = 1.0


class Wrapped(StrictModel):
    budget: Budget = Budget()
    rest: int = 0


def test_a_key_that_belongs_one_level_deeper_is_named_in_full():
    with pytest.raises(ConfigError, match=r"^--set wall_clock_s=3: .*did you mean 'budget\.wall_clock_s'\?"):
        parse_yaml("rest: 1", Wrapped, "f", ["wall_clock_s=3"])
    with pytest.raises(ConfigError, match=r"^--set nothing\.like=3: unknown key 'nothing'; known keys: budget, rest"):
        parse_yaml("rest: 1", Wrapped, "f", ["nothing.like=3"])
