"""The answers on which our scorers and other harnesses' are compared: made up here, one seed, one set.

Correct, wrong and awkward ones: other scripts, commas and points in numbers, signs, currencies and units, repeated
markers, code blocks, markdown, empty answers. `Case.kind` says which scorer it is for.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SEED = 7
N_NUMBER_CASES = 330
N_CHOICE_CASES = 190
N_POOL_TEXTS = 22
"""Texts of the pool that each instruction type is tried on."""


@dataclass(frozen=True)
class Case:
    """One answer and what it is judged by."""

    kind: str
    """`number` (GSM8K), `choice` (MMLU-Pro) or `instruction` (IFEval)."""
    answer: str
    reference: str = ""
    """Final number or letter."""
    name: str = ""
    """Instruction type."""
    arguments: dict[str, Any] = field(default_factory=dict)


def all_cases() -> list[Case]:
    """Every case once, in a fixed order."""
    cases = [*_sampled(_number_cases(), N_NUMBER_CASES), *_sampled(_choice_cases(), N_CHOICE_CASES)]
    cases += list(_instruction_cases())
    unique = {(case.kind, case.answer, case.reference, case.name, str(case.arguments)): case for case in cases}
    return list(unique.values())


def _sampled(cases: Iterator[Case], n: int) -> list[Case]:
    return random.Random(SEED).sample(list(cases), n)


NUMBER_FRAMES = (
    "#### {n}",
    "He has 3 + 4 = 7 and then some.\n#### {n}",
    "#### {n}.",
    "#### {n} dollars",
    "####{n}",
    "####  {n}",
    "#### ${n}",
    "#### {n}%",
    "#### {n}kg",
    "#### {n}\n\nQuestion: What is next?\n#### 5",
    "#### {w}\nWait, that is wrong.\n#### {n}",
    "First #### then #### {n}",
    "#### **{n}**",
    "#### {n}, because 2 + 2 = 4",
    "```\n#### {n}\n```",
    "The answer is {n}.",
    "The answer is {n}...",
    "So {n}, I think.",
    "{n}",
    "$ {n}",
    "It costs ${n}.",
    "In total €{n}!",
    "That makes {n} apples.",
    "It lies between 3-{n}.",
    "\\boxed{{{n}}}",
    "x={n}",
    "({n})",
    "**{n}**",
    "Answer: {n}\n",
    "ANSWER: {n}",
    "{n} is what remains of {w}",
    "Each has {w}; together {n}.\n",
    "###{n}",
    "### {n}",
    "#### {n} or {w}",
    "#### {n}-{w}",
    "#### {n}/2",
    "#### {n} million",
    "#### {n}k",
    "#### {n}e1",
    "#### {n}.5.1",
)
EMPTY_ANSWERS = (
    "",
    "   ",
    "\n",
    "#### ",
    "#### none",
    "No idea",
    "....",
    "####",
    "#### ,",
    "$",
    "-",
    "```\n```",
    "#### -",
)


def _number_cases() -> Iterator[Case]:
    for value, wrong in ((18, 20), (1234, 1243), (-7, 7), (0, 1), (1000000, 100000), (5, 6)):
        for frame in NUMBER_FRAMES:
            for written in _written(value):
                yield Case("number", frame.format(n=written, w=wrong), str(value))
            yield Case("number", frame.format(n=wrong, w=value), str(value))
        for empty in EMPTY_ANSWERS:
            yield Case("number", empty, str(value))
    for frame in NUMBER_FRAMES:
        for written in ("2.5", "2.50", "2,5", ".5", "5/2", "2½"):
            yield Case("number", frame.format(n=written, w=3), "2.5")


def _written(value: int) -> list[str]:
    """A whole number in many ways; not all of them say the same number."""
    grouped, plain = f"{value:,}", str(value)
    ways = [plain, grouped, f"{plain}.0", f"{grouped}.00", f"{plain}.", f"0{plain}" if value >= 0 else plain]
    ways += [plain.replace("-", "−"), plain.translate({ord("0") + i: 0xFF10 + i for i in range(10)}), f"+{plain}"]
    ways += [
        grouped.replace(",", " "),
        grouped.replace(",", "\u202f"),
        grouped.replace(",", "."),
        f"{plain[:-1]},{plain[-1]}",
    ]
    return list(dict.fromkeys(ways))


CHOICE_FRAMES = (
    "{a}",
    "({a})",
    "{a}.",
    "{a}) the second one",
    "**{a}**",
    "{l}",
    "The answer is {a}.",
    "The answer is ({a}).",
    "the answer is ({a}",
    "Let us think. It is old. The answer is ({a}).\n",
    "The answer is {a}) blue",
    "The answer is **{a}**.",
    "The answer is: {a}",
    "The answer is {l}.",
    "The answer is [{a}].",
    "The answer is option {a}.",
    "The correct answer is\n{a}",
    "The Answer is {a}",
    "THE ANSWER IS {a}",
    "Answer: {a}",
    "answer: {a}",
    "ANSWER: {a}\n",
    "ANSWER: {l}",
    "**Answer:** {a}",
    "Answer: ({a})",
    "Answer - {a}",
    "I would choose {a}",
    "{a} is right, since {o} is wrong.",
    "The answer is {o}. No, the answer is {a}.",
    "Answer: {o}\nAnswer: {a}",
    "First I thought the answer is ({o}), but the final answer is ({a}).",
    "The answer is not {o}. The answer is {a}.",
    "The answer is Apples, so ({a})",
    "The answer is A blue one, so {a}",
    "The answer is {a}nother one",
    "The answer is $\\boxed{{{a}}}$.",
    "$\\boxed{{{a}}}$",
    "The answer is {a}-frame",
    "The answer is {a} or {o}.",
    "`{a}`",
    "```\n{a}\n```",
    "Die Antwort ist {a}.",
    "The answer is Ａ",
    "The answer is ({a}) because the answer is never ({o}).",
)


def _choice_cases() -> Iterator[Case]:
    for frame in CHOICE_FRAMES:
        for right, wrong in (("A", "B"), ("B", "D"), ("C", "A"), ("D", "C")):
            yield Case("choice", frame.format(a=right, l=right.lower(), o=wrong), right)
            if right in "AC":
                yield Case("choice", frame.format(a=wrong, l=wrong.lower(), o=right), right)
    for empty in ("", "  ", "None of these", "The answer is E.", "The answer is J", "ANSWER: Z", "?", "answer is"):
        yield Case("choice", empty, "B")


def _instruction_cases() -> Iterator[Case]:
    texts = yaml.safe_load(Path(__file__).with_name("scorer_texts.yaml").read_text(encoding="utf-8"))
    rng = random.Random(SEED)
    for name, variants in texts["instructions"].items():
        for variant in variants:
            for answer in variant["answers"]:
                yield Case("instruction", answer, name=name, arguments=variant["arguments"])
        usual = [variant["arguments"] for variant in variants if _is_usual(variant["arguments"])]
        for answer in rng.sample(texts["pool"], N_POOL_TEXTS):
            yield Case("instruction", answer, name=name, arguments=rng.choice(usual))
    for code, sentences in texts["languages"].items():
        for text in sentences:
            for language in dict.fromkeys((code, "en")):
                yield Case("instruction", text, name="language:response_language", arguments={"language": language})


def _is_usual(arguments: dict[str, Any]) -> bool:
    """No zero and no sign, which the published checker replaces at random."""
    return 0 not in arguments.values() and str(arguments.get("letter", "a")).isalpha()
