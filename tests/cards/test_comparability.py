import dataclasses

import pytest

from agent2.cards.comparability import (
    ABSENT,
    IncomparableError,
    field_differences,
    protocol_differences,
    require_comparable,
)
from agent2.records import EvaluationProtocol, SamplingSettings, Split


def protocol(**changes):
    fields = {
        "benchmark": "mini_math-v1.0",
        "split": Split.DEV,
        "items_digest": "i",
        "sampling": SamplingSettings(max_tokens=64),
        "attempts": 1,
        "max_turns": 1,
        "environment": "question-v1.0",
        "scorer": "final_answer-v1.0",
        "dtype": "float32",
        "chat_template_digest": "c",
    }
    return EvaluationProtocol(**(fields | changes))


def test_equal_protocols_have_no_difference_and_may_be_compared():
    assert protocol_differences(protocol(), protocol()) == []
    require_comparable(protocol(), protocol())


CHANGES = {
    "benchmark": "mini_math-v1.1",
    "split": Split.TEST_PRIVATE,
    "items_digest": "j",
    "sampling": SamplingSettings(max_tokens=65),
    "attempts": 4,
    "max_turns": 2,
    "environment": "question-v1.1",
    "scorer": "final_answer-v1.1",
    "dtype": "bfloat16",
    "chat_template_digest": "d",
    "context_length": 4096,
    "tools": {"internet": True},
    "max_wall_time_s": 5.0,
    "retries": 0,
    "prompt_digest": "p",
    "judge_digest": "j",
    "context": "drop_admissible",
    "thinking": "auto",
}


def test_every_field_of_a_protocol_has_a_change_to_try():
    assert set(CHANGES) == {field.name for field in dataclasses.fields(EvaluationProtocol)}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_is_the_one_that_is_named(field):
    (difference,) = protocol_differences(protocol(), protocol(**{field: CHANGES[field]}))
    assert difference.field.split(".")[0] == field
    assert protocol().digest != protocol(**{field: CHANGES[field]}).digest


def test_incomparable_results_name_fields_and_both_values():
    changed = protocol(sampling=SamplingSettings(temperature=0.6, max_tokens=64), scorer="final_answer-v2.0")
    with pytest.raises(IncomparableError) as caught:
        require_comparable(protocol(), changed)
    sentence = str(caught.value)
    assert "sampling.temperature 0.0 against 0.6" in sentence
    assert "scorer 'final_answer-v1.0' against 'final_answer-v2.0'" in sentence
    assert "max_tokens" not in sentence


def test_a_field_of_one_side_alone_is_absent_on_the_other():
    (difference,) = field_differences({"a": 1, "b": None}, {"a": 1})
    assert (difference.field, difference.left, difference.right) == ("b", None, ABSENT)


def test_named_entries_are_paired_by_name_and_their_order_is_a_difference_of_its_own():
    left = {"list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}
    right = {"list": [{"name": "b", "n": 3}, {"name": "a", "n": 1}]}
    assert [difference.field for difference in field_differences(left, right)] == ["list[b].n", "list (order)"]


def test_one_and_one_point_zero_and_true_differ_as_their_digests_do():
    assert [len(field_differences([1], [value])) for value in (1, 1.0, True)] == [0, 1, 1]
