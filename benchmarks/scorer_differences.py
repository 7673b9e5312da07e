"""Why we and other harnesses disagree: each class of disagreement, who is right, and by which rule.

Where a benchmark publishes its own extraction (GSM8K's answer pattern, MMLU-Pro's chain of three), it is written down
here and asked as an arbiter; IFEval's published checker is the peer itself. Harnesses' further filters
(`flexible-extract`, `match(numeric=True)`) are nobody's published definition: there the question is what the text
says.
"""

import re
from dataclasses import dataclass
from typing import Any

from scorer_answers import Case


@dataclass(frozen=True)
class Difference:
    """One class of disagreement."""

    right: str
    """`ours`: by the published definition, or by the text where there is none. `departure`: the published definition
    agrees with the peer, and we leave it on purpose. `peer`: our mistake."""
    why: str


CLASSES: dict[str, Difference] = {
    "number written another way": Difference(
        "departure",
        "18.0, 018 and 1,234.00 are the reference as numbers; GSM8K's script and lm-eval compare strings. The question "
        "asks for a number, and inspect compares by value too.",
    ),
    "last number written another way": Difference(
        "ours", "18.0, 018 and 1,234.00 are the reference as numbers; lm-eval compares strings."
    ),
    "part of a number": Difference(
        "departure",
        "1,8 and 5/2 and 18-20 and 18k and 18 million and 2½ are not 18, 5 or 2; the published pattern deletes every "
        "comma and stops at the first character it does not know. Full marks for an answer that was not given would "
        "teach a model to write so.",
    ),
    "part of a number and a point": Difference(
        "ours", "lm-eval also deletes a point at the end (123,4. is 1234), which GSM8K's own script does not."
    ),
    "part of the last number": Difference(
        "ours", "The last number of the text is another one (1,8; 18k; 18 million); the peer drops what makes it so."
    ),
    "point taken for digits": Difference(
        "ours", "lm-eval's pattern takes the dots behind a number into it (18...), or takes dots alone for a number."
    ),
    "other digits, signs or spaces": Difference(
        "ours", "１８, −7 and 1 000 with a narrow space are numbers; the peer's pattern knows ASCII only."
    ),
    "hyphen taken for a minus": Difference("ours", "In 3-18 the hyphen joins two numbers; the last one is 18."),
    "number glued to a word or sign": Difference(
        "ours", "x=5, \\boxed{5}, ###5, +5 and 5kg say 5; inspect looks at whole words between spaces only."
    ),
    "bare or marked letter": Difference(
        "ours",
        "B, (B), **B**, `B` and B) say B; MMLU-Pro's published chain falls back to the last isolated letter, "
        "of which lm-eval has only the first step. inspect asks for ANSWER: in its prompt and finds it missing.",
    ),
    "letter behind Answer:": Difference(
        "ours", "Step two of MMLU-Pro's published chain, which lm-eval leaves out; inspect trips over markdown."
    ),
    "letter behind 'answer is', marked": Difference(
        "ours", "[B], **B**, ': B', 'option B' and a line break say B; the published chain finds it in its last step."
    ),
    "no ANSWER: line": Difference(
        "ours",
        "inspect's prompt asks for a line ANSWER: B; by MMLU-Pro's published pattern 'the answer is B' is right.",
    ),
    "lower-case letter": Difference(
        "ours", "MMLU-Pro's chain knows capitals only; inspect takes either behind ANSWER:."
    ),
    "last capital that stands alone": Difference(
        "ours",
        "'I would choose B', '\\boxed{B}' and 'Die Antwort ist B' say B by the third step of the published chain, that "
        "both peers leave out. It takes the last capital whatever is said of it: 'B is right, since A is wrong' is A.",
    ),
    "first letter of a word": Difference(
        "departure",
        "'The answer is Apples' and 'A-frame' choose no option; the published pattern takes the first letter whatever "
        "follows it.",
    ),
    "first or last of several": Difference(
        "ours", "MMLU-Pro's published patterns take the first statement of a kind, inspect the last."
    ),
    "argument zero": Difference(
        "ours",
        "The row says 0. lm-eval and inspect-evals drop arguments that are false in Python, and the checker then "
        "draws a random number in their place.",
    ),
    "sign as a letter": Difference(
        "ours",
        "The published checker draws a random letter when asked for '#' or '!', as rows of its own data ask; the "
        "instruction's text names the sign.",
    ),
    "keyword taken for a pattern": Difference(
        "departure",
        "C++, 3.5 and 'Part (a)' are words; the published checker reads them as regular expressions, so that C is C++. "
        "No row of the published data has such a keyword, so no published score changes.",
    ),
    "language of a scrap": Difference(
        "departure",
        "langdetect, the published judge, calls 'Hello' and 'dog' anything but English. In up to 30 words "
        "everyday words have a say, too; a word or two, and a list of names, speak for no language.",
    ),
    "language by luck": Difference(
        "ours", "langdetect draws random numbers: the peer's own verdict changes between askings."
    ),
    "where a sentence ends": Difference(
        "departure",
        "The published judge is NLTK's trained Punkt model, ours a rule. By reading, 'the U.S. She' and 'Wait... What?'"
        " end a sentence and 'i.e. this' does not; Punkt says the opposite.",
    ),
}


def published_number(answer: str, reference: str) -> int:
    """GSM8K's own script: first `#### ` number, commas deleted, equal as text."""
    match = re.search(r"#### (-?[0-9.,]+)", answer)
    return int(match is not None and match[1].replace(",", "") == reference)


def published_choice(answer: str, reference: str) -> int:
    """MMLU-Pro's own script: "answer is (X)", else "Answer: X", else the last isolated capital A to J."""
    for pattern in (r"answer is \(?([A-J])\)?", r".*[aA]nswer:\s*([A-J])"):
        if match := re.search(pattern, answer):
            return int(match[1] == reference)
    alone = re.findall(r"\b[A-J]\b", answer)
    return int(bool(alone) and alone[-1] == reference)


def published(case: Case, peer: str, peer_verdict: Any) -> int | None:
    """What the published definition says; None where there is none or it draws lots."""
    if case.kind == "number":
        return published_number(case.answer, case.reference) if peer == "lm_eval strict" else None
    if case.kind == "choice":
        return published_choice(case.answer, case.reference)
    draws = _instruction_class(case, peer_verdict) in ("argument zero", "sign as a letter", "language by luck")
    return None if draws else peer_verdict


def class_of(case: Case, peer: str, peer_verdict: Any, ours: float | None) -> str | None:
    """The class of one disagreement, None if it is in none."""
    if case.kind == "number":
        return _number_class(case, peer, ours)
    return _choice_class(case, peer, ours) if case.kind == "choice" else _instruction_class(case, peer_verdict)


def _number_class(case: Case, peer: str, ours: float | None) -> str | None:
    text = case.answer
    strict = peer == "lm_eval strict"
    if not ours:
        broken = (
            r"(?<![0-9]),[0-9]|[0-9],[0-9]{1,2}(?![0-9])|[0-9],[0-9]{4}|[0-9]\s?/\s?[0-9]|[0-9]-[0-9]"
            r"|[0-9.](?:k|e1)|million|½"
        )
        if not re.search(broken, text):
            return None
        if not strict:
            return "part of the last number"
        by_script = published_number(text, case.reference)
        return "part of a number" if by_script else "part of a number and a point"
    if not text.isascii():
        return "other digits, signs or spaces"
    if not strict and re.search(r"[0-9]--?[0-9]", text):
        return "hyphen taken for a minus"
    if peer == "inspect":
        return "number glued to a word or sign" if re.search(r"[=#{+][0-9+-]|[0-9.]kg", text) else None
    if not strict and re.search(r"[0-9][.,]{2,}|\.{2,}", text):
        return "point taken for digits"
    if re.search(r"\.0|\b0[0-9]|\.50", text):
        return "number written another way" if strict else "last number written another way"
    return None


def _choice_class(case: Case, peer: str, ours: float | None) -> str | None:
    text = case.answer.strip()
    several = len(re.findall(r"(?i)answer(?: is|:)", text)) > 1
    if not ours:
        if several and peer == "inspect":
            return "first or last of several"
        if re.fullmatch(r"ANSWER: [a-d]", text):
            return "lower-case letter"
        return "first letter of a word" if re.search(r"answer is [A-D](?:\w|-\w)", text) else None
    if re.search(r"answer is [A-D]\w", text) and not published_choice(text, case.reference):
        return "first letter of a word"
    if re.fullmatch(r"[(*`\s]*[A-D](?:[)*`.\s]*|\) .*)", text):
        return "bare or marked letter"
    if several and peer == "inspect":
        return "first or last of several"
    if re.search(r"(?i)answer:", text):
        return "letter behind Answer:"
    if peer == "inspect" and re.search(r"answer is \(?[A-D]", text):
        return "no ANSWER: line"
    return "letter behind 'answer is', marked" if re.search(r"answer is", text) else "last capital that stands alone"


def _instruction_class(case: Case, peer_verdict: Any) -> str | None:
    arguments = case.arguments
    if any(value == 0 for value in arguments.values()):
        return "argument zero"
    if case.name == "keywords:letter_frequency" and not arguments["letter"].isalpha():
        return "sign as a letter"
    tokens = [
        *arguments.get("keywords", ()),
        *arguments.get("forbidden_words", ()),
        arguments.get("section_spliter", ""),
    ]
    if any(re.search(r"[^\w\s]", word) for word in tokens):
        return "keyword taken for a pattern"
    if case.name in ("language:response_language", "change_case:english_capital", "change_case:english_lowercase"):
        return "language by luck" if peer_verdict is None else "language of a scrap"
    return "where a sentence ends" if case.name == "length_constraints:number_sentences" else None
