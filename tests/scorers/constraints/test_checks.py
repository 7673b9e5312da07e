import time

import pytest

from agent2.errors import ConfigError
from agent2.scorers.constraints import TYPES, read_instructions
from agent2.scorers.constraints.checks import InstructionClass

AT_LEAST, LESS = "at least", "less than"
EXAMPLES = [
    ("keywords:existence", {"keywords": ["sun", "rain"]}, "Rain, then SUNshine.", "Rain only."),
    ("keywords:existence", {"keywords": ["C++"]}, "I like c++ most", "I like C"),
    ("keywords:frequency", {"keyword": "sun", "frequency": 2, "relation": AT_LEAST}, "sun, Sunday", "sun"),
    ("keywords:frequency", {"keyword": "sun", "frequency": 2, "relation": LESS}, "sun", "sun, Sunday"),
    ("keywords:forbidden_words", {"forbidden_words": ["sun"]}, "sunny", "the Sun."),
    ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "C", "in C++."),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": AT_LEAST}, "# #", "#"),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2, "let_relation": LESS}, "the", "These"),
    ("language:response_language", {"language": "de"}, "Der Hund ist rot.", "The dog is red."),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": AT_LEAST}, "Go. Stop!", "Mr. X left."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb", "a\n***\n \n***\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": LESS}, "one two", "don't go"),
    ("length_constraints:number_words", {"num_words": 0, "relation": AT_LEAST}, "any", ""),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Sun"},
        'a\n\n"sun\'s" rays',
        "sun\n\nmoon",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] to [b]", "[a\nb] [c]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. more", "PS more"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S more", "P.S. more"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b", "* a\n** b"),
    ("detectable_format:constrained_response", {}, "So: My answer is no.", "no"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* **b**", "** ** *b*"),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 2}, "Part 1 Part2", "Part I"),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{'a': 1}"),
    ("detectable_format:title", {}, "see <<A day>>", "<< >>"),
    ("combination:two_responses", {}, "a\n******\nb", "a ****** a"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi. "}, " say HI. Hi!", "Hi! Say hi."),
    ("startend:end_checker", {"end_phrase": "That is all."}, '"Yes. that is all."', "That is all. Bye"),
    ("startend:quotation", {}, ' "a" ', "'a'"),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": AT_LEAST},
        "DON'T X-RAY",
        "A bC",
    ),
    ("change_case:english_capital", {}, "THE DOG IS RED.", "DER HUND IST ROT."),
    ("change_case:english_lowercase", {}, "the dog is red.", "The dog is red."),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
]


def finding(name, arguments, text):
    (instruction,) = read_instructions([name], [arguments], "test")
    return instruction.check(text)


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), EXAMPLES)
def test_an_instruction_tells_a_text_that_follows_it_from_one_that_does_not(name, arguments, good, bad):
    assert finding(name, arguments, good).followed
    assert not finding(name, arguments, bad).followed


def test_all_25_published_types_are_there_and_shown_above():
    assert len(TYPES) == 25
    assert {name for name, *_ in EXAMPLES} == set(TYPES)
    assert {row.kind for row in TYPES.values()} == set(InstructionClass)


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), EXAMPLES)
def test_an_empty_answer_follows_nothing(name, arguments, good, bad):
    assert not finding(name, arguments, " \n ").followed


HOSTILE = [
    "[" * 50_000,
    "<" * 50_000,
    "*" * 50_000,
    "* " * 25_000,
    "a." * 25_000,
    "(" * 50_000,
    "1" * 50_000,
    "P." * 25_000,
    "x" * 50_000,
    "\n" * 50_000 + "x",
    ")" * 49_000 + ".",
    "'" * 50_000,
    "{" * 50_000,
    "“" * 50_000,
]


@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, arguments, *_ in EXAMPLES])
def test_no_text_takes_long(name, arguments):
    started = time.process_time()
    for text in HOSTILE:
        finding(name, arguments, text)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("keyword:existence", {}, "row 7: unknown instruction 'keyword:existence'; did you mean 'keywords:existence'"),
        ("punctuation:no_comma", {"commas": 1}, "unknown argument of punctuation:no_comma 'commas'"),
        ("length_constraints:number_words", {"num_words": 3}, "lacks its argument 'relation'"),
        ("length_constraints:number_words", {"num_words": -1, "relation": LESS}, "num_words is -1; it must be a whole"),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": LESS}, "num_words is 2.5"),
        ("length_constraints:number_words", {"num_words": float("nan"), "relation": LESS}, "num_words is nan"),
        ("length_constraints:number_words", {"num_words": True, "relation": LESS}, "num_words is True"),
        ("length_constraints:number_words", {"num_words": 3, "relation": "at most"}, "relation is 'at most'"),
        ("keywords:existence", {"keywords": []}, r"keywords is \[\]; it must be a list of texts that are not empty"),
        ("keywords:existence", {"keywords": "sun"}, "keywords is 'sun'"),
        ("startend:end_checker", {"end_phrase": " "}, "end_phrase is ' '; it must be a text that is not empty"),
        ("language:response_language", {"language": "xx"}, "language is 'xx'; it must be a known language code"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_the_place(name, arguments, message):
    with pytest.raises(ConfigError, match=message):
        read_instructions([name], [arguments], "row 7")


def test_arguments_that_are_null_are_left_out_and_whole_floats_are_whole():
    (instruction,) = read_instructions(
        ["length_constraints:number_words"], [{"num_words": 3.0, "relation": LESS, "letter": None}], "test"
    )
    assert instruction.arguments == {"num_words": 3, "relation": LESS}


def test_no_instruction_at_all_is_refused():
    with pytest.raises(ConfigError, match="0 instructions with 0 sets"):
        read_instructions([], [], "test")
