import json
import random

import pytest

from agent2.integrity import Effect
from agent2.integrity.shortcuts import AnswerScan, shortest_run
from agent2.integrity.texts import TextUnit
from integrity_builders import make_items

RNG = random.Random(0)
ANSWERS = [str(RNG.randrange(200)) for _ in range(300)]
ITEMS = make_items([f"Calculate {a} + {b}" for a in range(10, 25) for b in range(20, 40)], answers=ANSWERS)


def effects(units, items=ITEMS):
    scan = AnswerScan({"test_private": items})
    for unit in units:
        scan.look(unit)
    return {finding.name: finding.effect for finding in scan.check().findings}


@pytest.mark.parametrize("form", [json.dumps, repr, lambda a: "\n".join(a), lambda a: ", ".join(a)])
def test_a_list_of_answers_in_order_voids_however_it_is_written(form):
    assert effects([TextUnit("code/a.py:1", f"x = {form(ANSWERS[40:70])}")]) == {"answers of hidden items": Effect.VOID}


def test_answers_of_another_order_prove_nothing():
    assert effects([TextUnit("a.json:1", json.dumps(sorted(ANSWERS)))]) == {}


def test_random_numbers_prove_nothing():
    rng = random.Random(1)
    units = [
        TextUnit(f"data/own.jsonl:{i}", json.dumps([str(rng.randrange(200)) for _ in range(1000)])) for i in range(50)
    ]
    assert effects(units) == {}


def test_how_long_a_run_must_be_follows_from_chance():
    assert shortest_run(ANSWERS) == 8  # p = 1/112.5: 300 * 1e7 / 112.5**8 < 1e-6 < 300 * 1e7 / 112.5**7
    assert shortest_run([RNG.choice("ABCD") for _ in range(300)]) in range(25, 28)
    assert shortest_run(["42"] * 300) is None and shortest_run(["1"]) is None
    assert shortest_run(["yes", "no"] * 5) is None, "ten answers are too few for so long a run"


def test_nearly_equal_answers_are_reported_as_unjudgeable():
    items = make_items([f"q {i}" for i in range(100)], answers=["42"] * 100)
    scan = AnswerScan({"test_private": items})
    scan.look(TextUnit("a:1", "42 " * 1000))
    assert scan.check().findings == () and "any run could be chance" in scan.check().looked_at


def test_hidden_questions_in_a_program_are_flagged_and_in_data_left_to_the_leak_check():
    table = "TABLE = {" + ", ".join(f"'{item.prompt}': {item.reference}" for item in ITEMS[::30]) + "}"
    assert effects([TextUnit("code/cheat.py:0", table)]) == {"hidden items in programs": Effect.FLAG}
    assert effects([TextUnit("code/train.jsonl:1", table)]) == {}


def test_one_question_in_a_program_is_a_note():
    example = f'print(ask("{ITEMS[7].prompt}"))'
    assert effects([TextUnit("code/try.py:0", example)]) == {"hidden items in programs": Effect.NOTE}
