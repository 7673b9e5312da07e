import time

import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.choice import ChoiceScorer, chosen_letter, last_letter

FOUR = ["red", "blue", "green", "gold"]
OPTIONS = {"options": FOUR}


def score(answer, reference="B", payload=OPTIONS):
    item = Item("i", Split.DEV, "?", reference, payload)
    return ChoiceScorer().score(item, Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "b",
        " (B) ",
        "**B**",
        "`B`",
        "```\nB\n```",
        "B.",
        "B) blue",
        "b. blue",
        "B: blue",
        "The answer is (B).",
        "the answer is B",
        "The answer is: **B**",
        "The answer is [B].",
        "The answer is option B.",
        "The correct answer is\nB",
        "Answer: B",
        "ANSWER: b",
        "**Answer:** B",
        "The answer is (B), not (C).",
        "The answer is Apples. Answer: B",
        "B) blue, as the sky is.",
        "b) Blue",
        "(a) The first part gives 3. (b) The second gives 4. The answer is (B).",
        "I. False. II. True. The answer is (B).",
        "The answer is $B$",
        "It is A. The answer is B",
        "The answer is A. Wait, that is wrong. The answer is B.",
        "Answer: A is tempting.\n\nAnswer: B",
        "So the answer is $\\boxed{B}$.",
        "The correct option is B.",
        "B) blue is what I choose",
        "B)blue",
        "B<|im_end|>",
        '{"answer": "B"}',
        '{"reasoning": "x", "answer": "B) blue"}',
        "\\boxed{B}",
        "The answer is \\(\\boxed{B}\\).",
        "The answer is:\n\\[ \\boxed{B} \\]",
        "$\\boxed{\\textbf{(B)}}$",
        "$\\text{B}$",
        "So the correct option is (B).",
        "The correct choice is B.",
        "The most likely diagnosis is (B) because",
        "The Answer is B",
        "ANSWER IS B",
        "<answer>B</answer>",
        "the answer is <b>B</b>",
        "The answer is (N/A).\n\nFinal Answer: The answer is (B).",
        "the correct answer is:\nU.S. NET EXPORTS: Decreases\n\nThe answer is (B).",
        "Therefore, the correct answer is O = 4, A = 401. The answer is (B).",
        "Antwort: Antwort: B",
        "Die richtige Antwort ist B",
        "Die Antwort lautet: (B)",
        "La bonne réponse est B.",
        "La réponse est donc l'option B",
        "La respuesta correcta es la opción B",
        "A resposta correta é a alternativa B",
        "La risposta corretta è la B",
        "Правильный ответ: B",
        "答案是B",
        "正确答案是 (B)。",
        "故选B。",
        "正解はBです",
        "答えは B です",
        "정답은 B입니다",
        "The answer is blue.",
        "blue",
        "Blue.",
        "The answer is **blue**",
        "I would choose B",
        "I'd go with option B.",
        "Option B is correct.",
        "B is the correct answer",
        "The answer is A? No. B is correct.",
        "We get:\n\n**B**",
        "The answer is (B) blue",
        "Final Answer: \\boxed{\\text{B) blue}}",
        "The answer is Ｂ",
        "<|channel|>final<|message|>The answer is B<|return|>",
        "(B)",
        "[B]",
        "\\boxed{B. blue}",
        "The answer is B because a car is",
        "Therefore the answer must be B",
        "The answer to this question is B.",
        "The final answer is: $\\boxed{\\mathrm{B}}$",
        "Answer：B",
        "Hence, option (B) is right.",
        "<final>B</final>",
        "The correct answer is **B) blue**.",
        "My answer: B",
        "The answer is “B”.",
        "answer: B</s>",
        "The answer is E. The answer is B",
        "Answer: b",
        "I think the answer is B, since A is wrong. Option C is wrong too.",
        "The answer is B.\n\nOption A is red and option C is green.",
        "Answer is B",
        "the answer is option (B), i.e. blue",
        "Correct answer: B",
        "**Correct Answer: B**",
        "The best answer is therefore B",
        "So, B.",
        "∴ B",
        "B, because the sky is blue",
        "**B** since it is not A",
        "B\n\nThe sky is blue.",
    ],
)
def test_the_last_statement_of_an_option_is_the_choice_in_any_form_that_models_write(text):
    assert chosen_letter(text, FOUR).letter == "B"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "the answer is B-side",
        "The answer is E",
        "E",
        "BB",
        "B C",
        "?",
        "The answer is none",
        "B+",
        "(b) The ratio in the complementary strand is 1/0.3 = 3.3, which settles part two",
        "B) blueberries",
        "The answer is A or B",
        "Answer: A and B",
        "The answer is not B",
        "I would not choose B",
        "The answer is a bit complex",
        "The answer is I think unclear",
        "A good question",
        "I do not know",
        "The answer is A good guess",
        "B is incorrect",
        "Is B correct",
        "The answer is between A and B",
        "none of the above",
        "The options are A, B, C and D.",
        "The answer is blueberries",
        "B, C and D are wrong",
        "A, B",
        "I, for one, do not know",
    ],
)
def test_what_names_no_option_or_two_is_no_choice(text):
    assert chosen_letter(text, FOUR).letter is None


@pytest.mark.parametrize(
    ("text", "last", "published"),
    [
        ("The answer is (B). Wait: the answer is (C).", "C", "B"),
        ("Answer: A, then. Answer: B\nAnswer: C", "C", "B"),
        ("The answer is Apples. Answer: B", "B", "B"),
        ("The answer is E. Answer: B", "B", "B"),
        ("So $\\boxed{B}$.", "B", "B"),
        ("It could be A. B it is", None, "B"),
        ("b", "B", None),
        ("I choose blue", "B", "I"),
        ("B is right, since A is wrong.", "B", "A"),
    ],
)
def test_the_published_chain_is_a_rule_of_its_own_with_its_third_step(text, last, published):
    assert chosen_letter(text, [*FOUR[:2], *FOUR[2:]]).letter == last
    assert chosen_letter(text, FOUR, "three_steps").letter == (published if published in tuple("ABCD") else None)


def test_questions_that_a_base_model_invents_behind_its_answer_are_not_its_answer():
    text = "The answer is (B).\n\nQuestion:\nWhat is green?\nOptions:\nA. red\nAnswer: The answer is (C)."
    assert chosen_letter(text, FOUR).letter == "B"
    assert chosen_letter("Question: which?\nAnswer: C", FOUR).letter == "C"


def test_a_text_that_two_options_begin_with_names_the_longer_one():
    assert chosen_letter("The answer is red wine", ["red", "red wine", "wine"]).letter == "B"
    assert chosen_letter("The answer is red", ["red", "RED", "wine"]).letter is None


def test_an_unknown_rule_is_refused_and_a_rule_is_part_of_the_version():
    with pytest.raises(ConfigError, match="rule 'first' is unknown; it is one of last, three_steps"):
        ChoiceScorer("first")
    assert ChoiceScorer().version != ChoiceScorer("three_steps").version


def test_the_number_of_options_decides_what_is_a_letter():
    assert chosen_letter("The answer is (J).", list("0123456789")).letter == "J"
    assert chosen_letter("C", FOUR[:2]).letter is None


@pytest.mark.parametrize(
    ("text", "letter"), [("I would choose B", "B"), ("A or B? C.", "C"), ("Blue", None), ("x", None)]
)
def test_the_flexible_reading_takes_the_last_letter_that_stands_alone(text, letter):
    assert last_letter(text, 4) == letter


@pytest.mark.parametrize(
    ("answer", "value", "parsed", "flexible", "chosen", "labels"),
    [
        ("B", 1.0, 1.0, 1.0, "chose_b", ()),
        ("The answer is C.", 0.0, 1.0, 0.0, "chose_c", ("mmlu_wrong_choice",)),
        ("What about B", 0.0, 0.0, 1.0, None, ("mmlu_answer_parse_fail",)),
        ("", 0.0, 0.0, 0.0, None, ("mmlu_answer_parse_fail",)),
        (None, 0.0, 0.0, 0.0, None, ("mmlu_answer_parse_fail",)),
    ],
)
def test_the_views_tell_format_answer_and_position_apart(answer, value, parsed, flexible, chosen, labels):
    verdict = score(answer)
    assert (verdict.value, verdict.labels) == (value, labels)
    assert (verdict.views["answer_parsed"], verdict.views["flexible_match"]) == (parsed, flexible)
    positions = {key: number for key, number in verdict.views.items() if key.startswith("chose_")}
    assert positions == {f"chose_{letter}": float(f"chose_{letter}" == chosen) for letter in "abcd"}


@pytest.mark.parametrize(
    ("reference", "payload"), [(None, OPTIONS), ("E", OPTIONS), ("BC", OPTIONS), ("B", {}), ("B", {"options": ["one"]})]
)
def test_an_item_that_cannot_be_judged_is_missing_and_not_zero(reference, payload):
    verdict = score("B", reference, payload)
    assert (verdict.value, verdict.fault) == (None, Fault.JUDGE)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "answer is " * 20_000,
        "answer is" + " " * 90_000,
        "answer is option" + " " * 90_000,
        "answer" + " " * 90_000 + "x",
        " " * 100_000,
        "*" * 99_000 + "B",
        "A" * 100_000,
        "answer:" * 20_000,
        "\\boxed{" * 15000,
        "<answer>" * 12000,
        "⟦" * 100000,
        "is (A) " * 15000,
        "most " * 20000,
        "\\text{" * 15000,
        "答案" * 50000,
        "\n" * 100000,
        "B\n" * 50000,
        " \t" * 50000,
        "$" * 100000,
        '"answer":' * 10000,
        "option " * 14000,
    ],
)
def test_no_answer_takes_long(text):
    started = time.process_time()
    score(text)
    assert time.process_time() - started < 10


def test_a_question_with_one_option_as_five_of_mmlu_pro_have_is_scored():
    assert score("The answer is (A).", "A", {"options": ["one"]}).value == 1.0
