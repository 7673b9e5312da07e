import json

import pytest

from agent2.records import digest_of
from agent2.texts import as_csv_cell, canonical, parse_json, printable, storable


def test_half_a_character_is_replaced_and_two_halves_find_each_other():
    assert storable("half \ud835 sign") == "half \ufffd sign"
    assert storable("\ud83d\ude00") == "😀"
    whole = "naïve \x00 \u200b 😀"
    assert storable(whole) is whole
    assert storable({"a\ud835": ["\ud835", 1, None]}) == {"a\ufffd": ["\ufffd", 1, None]}


@pytest.mark.parametrize(
    "text", [r'{"a": "\ud835"}', r'{"a": "\uD835"}', "\ufeff" + r'{"a": "\ud835"}', '{"a": "\ud835"}']
)
def test_json_is_read_with_a_byte_order_mark_and_without_half_characters(text):
    assert parse_json(text) == {"a": "\ufffd"}


def test_what_is_not_json_is_refused():
    with pytest.raises(ValueError):
        parse_json("{")


def test_texts_that_look_the_same_are_the_same_to_a_comparison():
    forms = ["caf\u00e9", "cafe\u0301", "\u200bcaf\u00e9", "\ufeffcaf\u00e9", "ca\u00adfé"]
    assert {canonical(text) for text in forms} == {"café"}
    family = "👩\u200d👧"
    assert canonical(family) == family, "its joiner makes it one sign"
    assert canonical("x²") == "x²", "another character is another text"


def test_a_digest_of_half_a_character_is_one():
    assert digest_of({"a": "\ud835"}) == digest_of({"a": json.loads(r'"\ufffd"')})


def test_text_of_others_moves_no_cursor_and_turns_no_line_around():
    assert printable("a\x1b[31mred\x1b[0m\x1b]0;title\x07 b\u202etxt\u202c\x9b2J\r!\ud800") == "ared b txt  2J ! "
    assert printable("two\tcolumns\nand a line") == "two    columns\nand a line"


@pytest.mark.parametrize("text", ["plain", "naïve café", "数学", "שלום", "[bold]x[/bold]", "🙂", "a  b"])
def test_honest_text_is_printed_as_it_is(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    "text", ['=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]
)
def test_a_spreadsheet_takes_no_cell_for_a_formula(text):
    assert as_csv_cell(text) == f"'{text}"
    assert as_csv_cell(f"'{text}") == f"''{text}", "so that the text can be had back"


@pytest.mark.parametrize("cell", ["-3", "+1,200.5", "-1e-3", "a=b", "x", "", "'quoted'", -3, 0.5, None])
def test_other_cells_stay_as_they_are(cell):
    assert as_csv_cell(cell) == cell
