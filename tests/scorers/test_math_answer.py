import time

import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers import load_scorer
from agent2.scorers.math_answer import MathAnswerScorer, final_expression, reference_expression

SCORERS = {rule: MathAnswerScorer(rule) for rule in ("any", "boxed", "integer")}


def score(answer, reference, rule="any"):
    item = Item("i", Split.DEV, "?", reference)
    return SCORERS[rule].score(item, Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5", "5"),
        (r"\boxed{\frac{1}{2}}", "0.5"),
        (r"\boxed{1/2}", r"\dfrac{1}{2}"),
        (r"\boxed{\frac12}", r"\frac{1}{2}"),
        (r"\boxed{1,000}", "1000"),
        (r"\boxed{10{,}000}", "10000"),
        (r"\boxed{x = 5}", "5"),
        (r"\boxed{5 \text{ cm}}", "5"),
        (r"\boxed{90^\circ}", "90"),
        (r"\boxed{50\%}", "50"),
        (r"\boxed{50\%}", "0.5"),
        (r"\boxed{\$5}", "5"),
        (r"\boxed{2\sqrt{2}}", r"\sqrt{8}"),
        (r"\boxed{(x+1)^2}", "x^2+2x+1"),
        (r"\boxed{\{2, 1\}}", r"\{1,2\}"),
        (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"(3,\frac{\pi}{2})"),
        (r"\boxed{[0,1)}", "[0,1)"),
        (r"\boxed{12\frac{3}{5}}", "63/5"),
        (r"\boxed{\begin{pmatrix} 2 \\ 4 \end{pmatrix}}", r"2\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"\boxed{\text{Monday}}", "Monday"),
        (r"First \boxed{3}, no: \boxed{5}.", "5"),
        ("The final answer is $5$.", "5"),
        ("The answer is 1.5.", "3/2"),
        ("**Answer:** 5", "5"),
        ("so it is 3 + 2\n#### 5", "5"),
        ("<answer>5</answer>", "5"),
        ("We get $a = 3$ and then $5$", "5"),
        ("In the end 5 apples remain", "5"),
        ("5", r"The sum is $3 + 2 = \boxed{5}$."),
    ],
)
def test_equal_expressions_are_right_however_they_are_written(answer, reference):
    assert score(answer, reference).value == 1.0


@pytest.mark.parametrize(
    ("answer", "reference", "label"),
    [
        (r"\boxed{0.33}", r"\frac{1}{3}", "math_wrong_answer"),
        (r"\boxed{(1,2)}", "(2,1)", "math_wrong_answer"),
        (r"\boxed{[0,1]}", "[0,1)", "math_wrong_answer"),
        (r"\boxed{-5}", "5", "math_wrong_answer"),
        (r"\boxed{5x}", "5", "math_wrong_answer"),
        (r"\boxed{3.14}", r"\pi", "math_wrong_answer"),
        (r"\boxed{5} or \boxed{6}", "5", "math_wrong_answer"),
        (r"\boxed{}", "5", "math_no_answer"),
        (r"\boxed{\frac}", r"\frac{1}{2}", "math_no_answer"),
        (r"\boxed{5", r"\frac{1}{2}", "math_wrong_answer"),
        ("I do not know", "5", "math_no_answer"),
        ("", "5", "math_no_answer"),
        (None, "5", "math_no_answer"),
    ],
)
def test_other_expressions_are_wrong_and_none_is_told_apart(answer, reference, label):
    verdict = score(answer, reference)
    assert (verdict.value, verdict.labels) == (0.0, (label,))
    assert verdict.views == {"answer_parsed": float(label == "math_wrong_answer"), "decided": 1.0}


@pytest.mark.parametrize("expression", [r"10^{10^{10}}", r"(10^9)!", "{" * 900 + "}" * 900])
def test_what_cannot_be_compared_in_its_time_is_the_answers_zero_and_harms_no_other(expression):
    started = time.monotonic()
    verdict = score(rf"\boxed{{{expression}}}", r"\frac{\pi}{2}")
    assert time.monotonic() - started < 300
    assert verdict.value == 0.0 and verdict.labels[0] in ("math_undecided", "math_no_answer")
    assert score(r"\boxed{\frac{2\pi}{4}}", r"\frac{\pi}{2}").value == 1.0


def test_nothing_is_evaluated_as_python(tmp_path):
    victim = tmp_path / "made"
    for code in (f"__import__('pathlib').Path('{victim}').touch()", f"\\text{{open('{victim}','w')}}"):
        score(rf"\boxed{{{code}}}", r"\frac{1}{2}")
        score(code, r"\frac{1}{2}")
    assert not victim.exists()


def test_the_rules_say_where_an_answer_is():
    assert score("The answer is 5", "5", "boxed").labels == ("math_no_answer",)
    assert score(r"\fbox{5}", "5", "boxed").value == 1.0
    assert score("Answer: 073", "73", "integer").value == 1.0
    assert score(r"\boxed{73.0}", "073", "integer").value == 1.0
    assert score(r"\boxed{\frac{146}{2}}", "73", "integer").value == 1.0
    assert score(r"\boxed{72 + 1}", "73", "integer").labels == ("math_no_answer",)
    assert score("73", "7.5", "integer").fault is Fault.JUDGE
    with pytest.raises(ConfigError, match="rule 'first' is unknown; it is one of any, boxed, integer"):
        load_scorer("math_answer", {"rule": "first"})


def test_an_item_that_cannot_be_judged_is_missing_and_refused_when_it_is_read():
    for reference in (None, "", " "):
        assert score("5", reference).fault is Fault.JUDGE
        with pytest.raises(ConfigError, match=r"row 3: the answer .* is not an expression"):
            SCORERS["any"].read_item(reference, {}, "row 3")
    assert score(r"\boxed{x}", r"\frac").fault is Fault.JUDGE
    assert SCORERS["any"].read_item(r"So \boxed{5}", {"a": 1}, "row 3") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (r"\boxed{\frac{1}{\sqrt{2}}} \quad", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed 7", "7"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"is \boxed{1} or \boxed{2", "1"),
        ("The answer to the question is: **42**.", "42"),
        ("none", "none"),
        ("There is no number in here.", None),
    ],
)
def test_where_the_answer_of_a_text_is(text, expression):
    assert final_expression(text) == expression


def test_the_reference_of_a_worked_solution_is_its_last_box():
    assert reference_expression(r"\boxed{1} then \boxed{2}") == "2"
    assert reference_expression(" 3 ") == "3"


@pytest.mark.parametrize(
    "text",
    ["$" * 100_000, "answer is " * 10_000, "\\boxed{" * 14_000, "<answer>" * 12_000, "1,111" * 20_000,
     "answer to " + "a " * 50_000],
)  # fmt: skip
def test_no_text_takes_long_to_read(text):
    started = time.process_time()
    final_expression(text)
    assert time.process_time() - started < 10
