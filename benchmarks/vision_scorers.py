"""Vision scorers beside the published evaluations: `python benchmarks/vision_scorers.py --lmms FOLDER --vlm FOLDER`.

FOLDER: where the packages `lmms-eval` and `ms-vlmeval` are unpacked (`pip download --no-deps`, then unzip), so that
neither has to be installed. Only the functions that give verdicts are read from their files and run, on answers that
are made here from one seed. The table has the cases of each scorer, how many verdicts differ, and how many of those are
departures that a docstring states. Exits with 1 if a difference is not one of these.
"""

import argparse
import ast
import math
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np
from rapidfuzz.distance import Levenshtein

from agent2.environments.option_orders import ORDER_ANSWERS, letter_at, shifted
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers import load_scorer

SEED = 11
N_CASES = 3000
UNREADABLE = "?"
"""In place of the option that MMMU's evaluation draws where it reads none."""
WORDS = ("red", "blue", "the chart", "42", "a dog", "DNA", "so", "is", "about", "answer", "Paris", "north", "7.50", "B")
OPTIONS = (
    ["red", "blue", "green", "grey"],
    ["7", "14", "21"],
    ["a dog", "a cat"],
    ["Paris", "Rome", "Bonn", "Oslo", "Bern"],
)


def functions_of(file: Path, names: set[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The functions (or methods) of those names in a file, run without the rest of it. Raises KeyError without one."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    chosen = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in chosen:  # what registers a function elsewhere
        node.decorator_list = []
    namespace: dict[str, Any] = dict(given)
    exec(compile(ast.Module([*chosen], []), str(file), "exec"), namespace)
    return {name: namespace[name] for name in names}


def verdict(name: str, answer: str, reference: str, payload: dict[str, Any], **settings: Any) -> float | None:
    """Our score."""
    item = Item("i", Split.DEV, "?", reference, payload)
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, payload.get("state", {}), Usage())
    return load_scorer(name, settings).score(item, rollout).value


def number_text(rng: random.Random) -> str:
    """A number in one of the ways models and charts write it."""
    value = rng.choice([rng.randint(0, 20), rng.randint(0, 3000), round(rng.uniform(-5, 120), rng.randint(1, 3))])
    form = rng.choice(["{}", "{}", "{}", "{}%", "{}.0", "${}", "{} million", "-{}", "{:,}", "{}e2", " {}"])
    return form.format(value)


def near(text: str, rng: random.Random) -> str:
    """The text, or a number around it, or the text with a slip."""
    kind = rng.randrange(4)
    if kind == 0:
        return text
    if kind == 1 and re.fullmatch(r"-?\d+(\.\d+)?", text):
        return f"{float(text) * rng.choice([0.94, 0.95, 0.96, 1.04, 1.05, 1.06]):g}"
    if kind == 2 and text:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice(string.ascii_letters + "  ") + text[place + 1 :]
    return rng.choice([text.upper(), f"{text} ", f"{text}\n", number_text(rng), " ".join(rng.choices(WORDS, k=3))])


def answers_to_options(options: list[str], rng: random.Random) -> str:
    """An answer to a multiple-choice question."""
    letter = rng.choice(string.ascii_uppercase[: len(options) + 1])
    option = rng.choice(options)
    forms = (
        "{l}", "({l})", "{l}.", "The answer is {l}.", "The answer is ({l}), not (A).", "A guess: {l} or B",
        "It seems to me that in this picture there is {o}", "{o}", "I think {o}", "{l}. {o}", "I cannot tell", "", "Z",
        "Cannot determine the answer", "DNA is shown, so {l} it is", "**{l}**", "{o} and {l}, as it says, can be",
    )  # fmt: skip
    return rng.choice(forms).format(l=letter, o=option)


class Rows:
    """As much of a data frame as the published circular evaluation reads."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.iloc = rows

    def __len__(self) -> int:
        return len(self.iloc)


def compare_texts(lmms: Path, vlm: Path, rng: random.Random) -> Iterator[tuple[str, bool, str]]:
    """Scorer, whether the verdicts agree, and the case, or the departure that it is: ChartQA and DocVQA."""
    relaxed = functions_of(lmms / "tasks/chartqa/utils.py", {"relaxed_correctness"}, {})["relaxed_correctness"]
    anls = functions_of(lmms / "api/metrics.py", {"anls", "levenshtein_distance"}, {})["anls"]
    vqa = vlm / "dataset/utils/vqa_eval.py"
    from_vlm = functions_of(
        vqa, {"relaxed_correctness", "anls_compute", "levenshtein_distance"}, {"Optional": Optional}
    )
    for _ in range(N_CASES):
        reference = rng.choice([number_text(rng).strip(), " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))])
        answer = near(reference, rng).strip()
        ours = verdict("relaxed_accuracy", answer, reference, {})
        for whose, theirs in (
            ("lmms", relaxed(answer, reference)),
            ("vlm", from_vlm["relaxed_correctness"](reference, answer)),
        ):
            yield (
                f"relaxed_accuracy ({whose})",
                ours == float(theirs),
                f"{answer!r} for {reference!r}: {ours}, {theirs}",
            )
        ours = verdict("anls", answer, reference, {}, rule="published") or 0.0
        share = 1 - from_vlm["anls_compute"](reference, answer)
        for whose, number in (("lmms", anls([reference], [answer])["anls"]), ("vlm", 0.0 if share < 0.5 else share)):
            is_same = math.isclose(ours, number, abs_tol=1e-9)
            yield f"anls, rule published ({whose})", is_same, f"{answer!r} for {reference!r}: {ours}, {number}"
        paper = verdict("anls", answer, reference, {}) or 0.0
        why = "stated: exactly one half, blanks" if " " in answer + reference or share == 0.5 else f"{answer!r}"
        yield "anls, rule paper (vlm)", math.isclose(paper, 0.0 if share < 0.5 else share, abs_tol=1e-9), why


def compare_mmmu(lmms: Path, rng: random.Random) -> Iterator[tuple[str, bool, str]]:
    """The same for MMMU."""

    class NoDraw:
        @staticmethod
        def choice(options: object) -> str:
            return UNREADABLE

    shared = functions_of(
        lmms / "tasks/_task_utils/mmmu_mcq_utils.py", {"parse_mmmu_multi_choice_response"}, {"random": NoDraw, "np": np}
    )
    names = {"eval_open", "parse_open_response", "normalize_str", "check_is_number", "extract_numbers"}
    published = functions_of(lmms / "tasks/mmmu/utils.py", names, {"re": re})
    for _ in range(N_CASES):
        options = rng.choice(OPTIONS)
        letters = string.ascii_uppercase[: len(options)]
        reference, answer = rng.choice(letters), answers_to_options(options, rng).strip()
        theirs = shared["parse_mmmu_multi_choice_response"](
            answer, list(letters), dict(zip(letters, options, strict=True))
        )
        ours = verdict("mmmu", answer, reference, {"options": options})
        yield (
            "mmmu, choice (lmms)",
            ours == float(theirs == reference),
            f"{answer!r}: {ours}, {theirs!r} for {reference}",
        )
        reference = rng.choice([number_text(rng).strip(), rng.choice(WORDS)])
        body = near(reference, rng)
        frame = rng.choice(
            ["{}", "So it is {}.", "x = {}", "It could be 3.\nThus {}", "{} is the answer ", "a = 2\nb = {}"]
        )
        answer = frame.format(body).strip()
        is_right = published["eval_open"](reference, published["parse_open_response"](answer))
        ours = verdict("mmmu", answer, reference, {"question_type": "open"})
        is_same = ours == float(is_right) or not answer
        yield "mmmu, open (lmms)", is_same, f"{answer!r} for {reference!r}: {ours}, {is_right}"


def compare_mathvista(lmms: Path, rng: random.Random) -> Iterator[tuple[str, bool, str]]:
    """The same for MathVista, on extracted answers."""
    names = {"normalize_extracted_answer", "get_most_similar", "safe_equal"}
    given = {"re": re, "distance": Levenshtein.distance}
    published = functions_of(lmms / "tasks/mathvista/mathvista_evals.py", names, given)
    evaluator = type("Evaluator", (), published)()
    for _ in range(N_CASES):
        kind = rng.choice(["multi_choice", "integer", "float", "list", "text"])
        options = rng.choice(OPTIONS) if kind == "multi_choice" else []
        precision = rng.randint(1, 2)
        value = round(rng.uniform(0, 30), precision)
        reference = {
            "integer": str(int(value)),
            "float": f"{value:.{precision}f}",
            "list": "[1, 2]",
            "text": "red",
        }.get(kind)
        reference = reference or rng.choice(options)
        answer = near(reference, rng).strip() if not options else answers_to_options(options, rng).strip()
        form, answer_type = ("multi_choice", "text") if options else ("free_form", kind)
        theirs = evaluator.normalize_extracted_answer(answer, options, form, answer_type, precision)
        is_right = evaluator.safe_equal(theirs, reference)
        payload = {"question_type": form, "answer_type": answer_type, "precision": precision, "options": options}
        ours = verdict("mathvista", answer, reference, payload, rule="extracted")
        why = f"{kind} {answer!r} for {reference!r}: {ours}, {theirs!r}"
        if options and is_right and ours == 0.0:
            why = "stated: an option that is not near counts as none"
        if kind == "float" and reference.endswith("0") and ours == 1.0:
            why = "stated: 1.50 and 1.5 are one decimal"
        yield "mathvista, rule extracted (lmms)", ours == float(is_right), why


def compare_mmbench(vlm: Path, rng: random.Random) -> Iterator[tuple[str, bool, str]]:
    """The same for MMBench, question by question over all orders."""
    import copy
    import os

    given = {"os": os, "cp": copy, "string": string, "logger": None}
    can_infer = functions_of(
        vlm / "utils/matching_util.py", {"can_infer", "can_infer_option", "can_infer_text"}, given
    )["can_infer"]
    given = {"prefetch_answer": lambda row: can_infer(row["prediction"], dict(row["choices"]))}
    group = functions_of(vlm / "dataset/utils/multiple_choice.py", {"prefetch_circular_group"}, given)[
        "prefetch_circular_group"
    ]
    for _ in range(N_CASES):
        options = rng.choice(OPTIONS)
        n = len(options)
        reference = rng.choice(string.ascii_uppercase[:n])
        rows, answers = [], []
        is_good = rng.random() < 0.7
        for shift in range(n):
            right = letter_at(reference, shift, n)
            answer = (
                rng.choice([right, f"({right})", f"The answer is {right}."])
                if is_good
                else answers_to_options(options, rng)
            )
            choices = dict(zip(string.ascii_uppercase, shifted(options, shift), strict=False))
            rows.append({"GT": right, "prediction": answer, "choices": choices})
            answers.append(answer)
        outcome = group(Rows(rows))
        hit = 0.0 if outcome is None else float(outcome["hit"])
        ours = verdict(
            "option_orders", "", reference, {"options": options, "state": {ORDER_ANSWERS: answers}}, rule="mmbench"
        )
        yield "option_orders, rule mmbench (vlm)", ours == hit, f"{answers} for {reference}: {ours}, {hit}"


def main() -> int:
    """Compare, print the table, and say whether every difference is a stated one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lmms", type=Path, required=True, help="folder lmms_eval of the unpacked package")
    parser.add_argument("--vlm", type=Path, required=True, help="folder vlmeval of the unpacked package")
    arguments = parser.parse_args()
    rng = random.Random(SEED)
    n_cases: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    stated: Counter[str] = Counter()
    unexplained: list[str] = []
    for compared in (
        compare_texts(arguments.lmms, arguments.vlm, rng),
        compare_mmmu(arguments.lmms, rng),
        compare_mathvista(arguments.lmms, rng),
        compare_mmbench(arguments.vlm, rng),
    ):
        for name, agrees, why in compared:
            n_cases[name] += 1
            if not agrees:
                differing[name] += 1
                stated[name] += why.startswith("stated")
                unexplained += [] if why.startswith("stated") else [f"{name}: {why}"]
    print("| scorer | cases | differ | stated departures |\n|---|---:|---:|---:|")
    for name, n in n_cases.items():
        print(f"| {name} | {n} | {differing[name]} | {stated[name]} |")
    for line in unexplained[:20]:
        print(line)
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
