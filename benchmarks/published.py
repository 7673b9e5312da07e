"""Our numbers on data and outputs that others published: expectation, ours, difference.

    python benchmarks/published.py DATA [--only NAME ...] [--games N]

DATA is a folder of official files, one subfolder a source (`gsm8k/`, `mmlu_pro/`, `ifeval/`, ...); the table of its
README.md says which. Each line recomputes a published number with the scorers, statistics and readers of agent2; a
second table has one line for each row of that README, with what of it is not served and why. Exit code 1 if a number is
further from its expectation than is explained, or could not be computed. `.eval` logs of inspect-ai need the extra
`inspect`; length-controlled win rates need the extra `winrate`, and are left out without it.

The data are never part of the project; nothing here trains on or prompts with them.
"""

import argparse
import csv
import json
import lzma
import math
import random
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy.special import expit
from scipy.stats import spearmanr

from agent2.analysis.judge_check import check_judge, read_pairs, read_verdicts
from agent2.arena.analysis.published import read_published
from agent2.benchmarks import CATALOG, load_benchmark
from agent2.benchmarks.alfworld import AlfworldChat, published_examples
from agent2.benchmarks.alpacaeval import is_switched, preference
from agent2.benchmarks.data_files import read_rows
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.humaneval import TIMEOUT_S, HumanEval, Mbpp
from agent2.benchmarks.questions import Question
from agent2.cards.imports.formats import read_log
from agent2.errors import Agent2Error
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.evaluation.scoring import ScoringResources, sandbox_runner
from agent2.files import numbered_lines
from agent2.llm.served import read_answer
from agent2.llm.wire_problems import WireProblem
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Message, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.accepted_calls import first_accepted, matched_calls, read_accepted
from agent2.scorers.answers import ExactScorer, FinalAnswerScorer, reference_value
from agent2.scorers.choice import RULES, chosen_letter
from agent2.scorers.code_blocks import code_of
from agent2.scorers.constraints import followed_loosely, read_instructions
from agent2.scorers.constraints.languages import detect_language
from agent2.scorers.math_answer import MathAnswerScorer
from agent2.scorers.python_tests import ProgramVerdict, PythonTestsScorer
from agent2.scorers.reward import PurchaseReward
from agent2.stats.aggregates import mean_over_tasks, median_over_tasks
from agent2.stats.attempts import best_of_n, majority_at_k, pass_hat_k, pass_metrics, tally
from agent2.stats.estimates import UNIT, measure
from agent2.stats.length_control import BaselinePairs, estimate_difficulty, length_controlled, standardised
from agent2.stats.ranking import win_rate

RNG_SEED = 1
BASELINE = "gpt4_1106_preview"
"""Of AlpacaEval 2; its own win rate is a half by definition."""
UNCONSTRAINED = 0.03
"""Spearman's correlation may be so far from 1 where the regularisation towards the baseline is missing."""
T = TypeVar("T")
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One number."""

    what: str
    expected: float
    ours: float
    tolerance: float = 0.0
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether ours is the expected number; NaN is not."""
        return abs(self.ours - self.expected) <= self.tolerance + 1e-9


def lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL file; U+2028 and the like do not end a line."""
    return [json.loads(line) for _, line in numbered_lines(path.read_text(encoding="utf-8"))]


def rollout(answer: str | None) -> Rollout:
    """A finished rollout with that answer."""
    return Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())


def n_published(name: str, folder: Path) -> int:
    """Questions of the published test set as a packaged benchmark reads them."""
    benchmark = load_benchmark(name, folder)
    assert isinstance(benchmark, DeclaredBenchmark)
    return len(benchmark.whole_portion(Portion.TEST))


def gsm8k(data: Path) -> Iterator[Row]:
    """The published solutions end with `A: 18`; that marker is taken for `#### 18`."""
    published = {"6b_finetuning": 286, "6b_verification": 515, "175b_finetuning": 458, "175b_verification": 742}
    scorer, agree = FinalAnswerScorer(), 0
    correct: dict[str, int] = defaultdict(int)
    for row in lines(data / "example_model_solutions.jsonl"):
        item = Item("i", Split.DEV, "?", row["ground_truth"].replace("A: ", "#### "))
        for name in published:
            value = scorer.score(item, rollout(row[name]["solution"].replace("A: ", "#### "))).value
            correct[name] += value == 1.0
            agree += (value == 1.0) == row[name]["is_correct"]
    for name, expected in published.items():
        yield Row(f"{name}: correct of 1,319", expected, correct[name])
    yield Row("verdicts that agree with is_correct", 5276, agree)
    yield from gsm8k_from_yaml(data, published)
    references = [reference_value(row["answer"]) for part in ("train", "test") for row in lines(data / f"{part}.jsonl")]
    yield Row("references read, train and test", 8792, sum(value is not None for value in references))


def gsm8k_from_yaml(data: Path, published: dict[str, int]) -> Iterator[Row]:
    """The same solutions as answers to the items of the `benchmark.yaml` in docs/how-to, through the engine."""
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "own-benchmark.md").read_text(encoding="utf-8")
    written = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    solutions = {row["question"]: row for row in lines(data / "example_model_solutions.jsonl")}
    with tempfile.TemporaryDirectory(prefix="agent2-gsm8k-") as folder:
        (Path(folder) / "benchmark.yaml").write_text(written, encoding="utf-8")
        for name in ("train.jsonl", "test.jsonl"):
            shutil.copyfile(data / name, Path(folder) / name)
        benchmark = DeclaredBenchmark(Path(folder), ['scorer.marker="A: "'])
        hidden = (Split.TEST_PUBLIC, Split.TEST_PRIVATE)
        parts = [benchmark.items(split, benchmark.count(split, b"published"), b"published") for split in hidden]
    attempts = [Attempt(item, 0, 0) for part in parts for item in part]
    end = benchmark.spec.prompt.removeprefix("{question}")

    def answer(name: str, chat: Sequence[Message]) -> str:
        return str(solutions[chat[-1].content.removesuffix(end)][name]["solution"])

    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    for name, expected in published.items():
        sampler = ScriptedSampler(partial(answer, name))
        rollouts = play(attempts, sampler, benchmark.environment, benchmark.scorer(), settings)
        n_right = sum(rollout.score.value == 1.0 for rollout in rollouts)
        yield Row(f"{name}: correct, from a benchmark.yaml of {len(written.splitlines())} lines", expected, n_right)


def mathematics(data: Path) -> Iterator[Row]:
    """Statistics over 100 problems x 8 samples; the verdicts on a sample are the published ones."""
    rows = lines(data / "qwen25math/evaluation/data/eval_rm_maj_example/math_cot_100.jsonl")
    solved = [[float(verdict) for verdict in row["score"]] for row in rows]
    rewards = [[verdict[0] for verdict in row["pred_score"]] for row in rows]
    yield Row("pass@1, %", 91, 100 * pass_metrics(tally(solved), 8).pass_at_1.value, 1e-6)
    majority = 100 * majority_at_k([row["pred"] for row in rows], solved, 8).value
    yield Row("majority@8, %", 93, majority, 0.5, "ties are shared here, the published script takes the first")
    scorer = MathAnswerScorer()
    verdicts = [
        scorer.score(Item("i", Split.DEV, "?", row["answer"]), rollout(text)).value
        for row in rows
        for text in row["code"]
    ]
    n_solved = sum(map(sum, solved))
    note = "the published script takes 10000 for another number than 10{,}000"
    yield Row("samples that math_answer finds right", n_solved, sum(map(bool, verdicts)), 1, note)
    best = best_of_n(solved, rewards, 8, "reward model")
    yield Row("best-of-8 by reward, %", 94, 100 * best.chosen.value, 0.5)
    for name, folder, n_problems in (
        ("math", "zubingou/data/math", 5000),
        ("math_500", "zubingou/data/math_oai", 500),
        ("aime_private", "qwen25math/evaluation/data/aime24", 30),
    ):
        yield Row(f"{name}: problems read with an answer", n_problems, n_published(name, data / folder))


def svamp(data: Path) -> Iterator[Row]:
    """Every reference as a number."""
    rows = json.loads((data / "SVAMP.json").read_text(encoding="utf-8"))
    yield Row("references read", 1000, sum(reference_value(str(row["Answer"])) == row["Answer"] for row in rows))


def tora(data: Path) -> Iterator[Row]:
    """The program's printed result as the final answer."""
    scorer, n_right, rows = FinalAnswerScorer(), 0, lines(data / "tora-70b-v1.0.gsm8k.jsonl")
    for row in rows:
        item = Item("i", Split.DEV, "?", row["gt"])
        n_right += scorer.score(item, rollout(f"#### {row['pred'][0]}")).value == 1.0
    yield Row("correct of 1,319", 1112, n_right, 0, "published: 84.3%")


def bbh(data: Path) -> Iterator[Row]:
    """Exact match of the text behind "the answer is", for the tasks whose outputs are there; every item is read."""
    for path in sorted((data / "code-davinci-002-outputs").glob("*/*-255000.json")):
        outputs = json.loads(path.read_text(encoding="utf-8"))["outputs"]
        published = lines(path.with_name(path.stem + "_eval_metrics.jsonl"))[0]["accuracy"]
        is_worked = "-cot" in path.parent.name
        scorer = ExactScorer(after="the answer is") if is_worked else ExactScorer()
        verdicts = []
        for output in outputs:
            answer = output["prediction"]
            if not is_worked:
                answer = answer.split("\n\n")[0].strip().removesuffix(".")
            verdicts.append(scorer.score(Item("i", Split.DEV, "?", output["target"].strip()), rollout(answer)).value)
        name = path.name.partition("_few_shot")[0]
        ours = 100 * measure(verdicts, "accuracy", UNIT).value
        yield Row(f"{name}, {path.parent.name.rpartition('-')[2]}, %", published, ours, 0.05)
    yield Row("items read, repeats included", 6511, n_published("bbh", data))


def truthfulqa(data: Path) -> Iterator[Row]:
    """Every question, with one and with several true options."""
    n_rows = len(read_rows(data / "TruthfulQA.csv"))
    for name in ("truthfulqa_mc1", "truthfulqa_mc2"):
        yield Row(f"{name}: questions read", n_rows, n_published(name, data))


def mmlu_pro(data: Path) -> Iterator[Row]:
    """The stored letters, and the accuracy with the random fill of unread answers that the authors' script adds."""
    (archive,) = data.glob("*Llama-3-70B*.zip")
    with zipfile.ZipFile(archive) as opened:
        rows = json.loads(opened.read(opened.namelist()[0]))
    generator = random.Random(12345)
    n_filled = n_same = n_stored = n_same_by_last = 0
    for row in tracked(rows, "mmlu_pro"):
        options, text, stored = row["options"], row["generated_text"], row["pred"]
        letter = chosen_letter(text, options, "three_steps").letter
        # The stored letters are of the first two steps of the chain; the third came later.
        if stored is not None:
            n_stored += 1
            n_same += letter == stored
            n_same_by_last += chosen_letter(text, options).letter == stored
        n_filled += letter == row["answer"]
        if letter is None:
            n_filled += generator.randint(0, len(options) - 1) == row["answer_index"]
    note = "the others name a letter that is not an option, wrong either way"
    yield Row("Llama-3-70B: stored letters, read by the published rule", n_stored, n_same, 4, note)
    note = "where an answer is stated twice or names several, the last or none counts"
    yield Row("the same, read by our default rule", n_stored, n_same_by_last, 20, note)
    note = "7 of 12,032 last letters are read otherwise: a hyphen or apostrophe beside a letter makes it part of a word"
    yield Row("accuracy with the seeded fill, %", 52.78, 100 * n_filled / len(rows), 0.05, note)

    boxed = data / "deepseek_boxed_400.json"
    rows = json.loads(boxed.read_text()) if boxed.is_file() else []
    for rule in RULES if rows else ():
        n_same = sum(chosen_letter(row["text"], row["options"], rule).letter == row["pred"] for row in rows)
        note = "1 names no option (a boxed 251); the stored letter is the script's random fill"
        yield Row(f"DeepSeek-Coder-V2: stored letters of boxed answers, rule {rule}", len(rows), n_same, 1, note)


def ifeval(data: Path) -> Iterator[Row]:
    """Against the official checker's verdict on each instruction of GPT-4's answers."""
    folder = data / "podtech"
    rows = {row["prompt"]: row for row in lines(folder / "input_data.jsonl")}
    kinds = zip(lines(folder / "eval_results_strict.jsonl"), lines(folder / "eval_results_loose.jsonl"), strict=True)
    counts, departures = followed_instructions(
        (
            rows[strict["prompt"]],
            strict["response"],
            {"strict": strict["follow_instruction_list"], "loose": loose["follow_instruction_list"]},
        )
        for strict, loose in kinds
    )
    notes = "explained in docs/mini-benchmarks.md"
    for name, expected, allowed in (
        ("strict prompts", 417, 5),
        ("strict instructions", 697, 5),
        ("loose prompts", 430, 6),
        ("loose instructions", 712, 7),
    ):
        yield Row(f"{name} followed", expected, counts[name], allowed, notes)
    yield Row("verdicts of 1,664 that differ", 0, len(departures), 12, "; ".join(departures))
    official = DeclaredBenchmark(CATALOG / "ifeval.yaml", data=data / "official541")
    yield Row("official rows read", 541, len(official.questions_in_file(Portion.TEST)))
    yield from m_ifeval(data / "m_ifeval")


def m_ifeval(data: Path) -> Iterator[Row]:
    """Against the verdicts of M-IFEval's checker on a small model's answers to the English prompts."""
    archives = sorted(data.glob("mifeval_en_*.jsonl.xz"))
    if not archives:
        return
    questions = {row["prompt"]: row for row in lines(data / "en_input_data.jsonl")}
    with lzma.open(archives[0], "rt", encoding="utf-8") as opened:
        rows = [json.loads(line) for line in opened]
    counts, departures = followed_instructions(
        (questions[row["prompt"]], row["response"], {kind: row[kind] for kind in ("strict", "loose")}) for row in rows
    )
    for name, expected in (("strict prompts", 310), ("strict instructions", 566)):
        yield Row(f"Qwen2.5-3B: {name} followed", expected, counts[name], 13, "the departures below")
    yield Row("Qwen2.5-3B: verdicts that differ", 0, len(departures), 30, "; ".join(departures))


def followed_instructions(
    answers: Iterable[tuple[dict[str, Any], str, dict[str, list[bool]]]],
) -> tuple[dict[str, int], list[str]]:
    """Of each question, answer and published verdicts by kind: our counts, and each verdict that differs in words."""
    counts: dict[str, int] = defaultdict(int)
    departures = []
    for row, answer, published in answers:
        instructions = read_instructions(row["instruction_id_list"], row["kwargs"], "row")
        findings = [instruction.check(answer) for instruction in instructions]
        ours = {
            "strict": [finding.followed for finding in findings],
            "loose": followed_loosely(instructions, findings, answer),
        }
        for kind, verdicts in published.items():
            counts[f"{kind} prompts"] += all(ours[kind])
            counts[f"{kind} instructions"] += sum(ours[kind])
            for instruction, here, theirs in zip(instructions, ours[kind], verdicts, strict=True):
                if here != theirs:
                    departures.append(f"{kind} {row['key']} {instruction.name}: ours {here}, published {theirs}")
    return counts, departures


def bfcl(data: Path) -> Iterator[Row]:
    """Every gold call passes; each of six mutations fails."""
    for path in sorted((data / "possible_answer").glob("*.json")):
        items = [accepted for row in lines(path) if (accepted := read_accepted(row["ground_truth"])) is not None]
        if not items:
            continue
        gold = [[first_accepted(call) for call in accepted] for accepted in items]
        pairs = list(zip(gold, items, strict=True))
        n_passed = sum(matched_calls(calls, accepted) == len(accepted) for calls, accepted in pairs)
        wrong = [(made, accepted) for calls, accepted in pairs for made in mutated(calls)]
        n_wrong = sum(matched_calls(made, accepted) == len(accepted) == len(made) for made, accepted in wrong)
        name = path.stem.removeprefix("BFCL_v4_")
        yield Row(f"{name}: gold calls that pass", len(items), n_passed)
        yield Row(f"{name}: mutated calls of {len(wrong)} that pass", 0, n_wrong)


def mutated(calls: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Another name, an argument too many, a call too few or too many, an argument too few, another value."""
    first, rest = calls[0], calls[1:]
    yield [{**first, "name": first["name"] + "_"}, *rest]
    yield [{**first, "arguments": {**first["arguments"], "surplus": 1}}, *rest]
    yield rest
    yield [*calls, first]
    for name in list(first["arguments"])[:1]:
        others = {key: value for key, value in first["arguments"].items() if key != name}
        yield [{**first, "arguments": others}, *rest]
        yield [{**first, "arguments": {**others, name: "none of the values"}}, *rest]


def language(data: Path) -> Iterator[Row]:
    """The language of sentences (Leipzig corpora), by the detector of the IFEval scorer."""
    rows = [line.split("\t", 1) for line in (data / "sentences.tsv").read_text(encoding="utf-8").splitlines()]
    n_right = sum(detect_language(text) == code for code, text in tracked(rows, "language"))
    yield Row(
        "sentences told right, %", 100, 100 * n_right / len(rows), 1.0, "neighbours: Russian, Ukrainian, Bulgarian"
    )


def alpaca_eval(data: Path) -> Iterator[Row]:
    """Win rates and their standard errors from the published preferences."""
    with (data / "weighted_alpaca_eval_gpt4_turbo_leaderboard.csv").open(encoding="utf-8") as file:
        board = {row[""]: row for row in csv.DictReader(file)}
    worst_rate = worst_error = n_models = 0.0
    for row in lines(data / "prefs_lengths_57_models.jsonl"):
        outcomes = np.array(row["preference"], dtype=float) - 1
        if row["model"] not in board:
            continue  # one model is not on this leaderboard
        listed = board[row["model"]]
        worst_rate = max(worst_rate, abs(100 * win_rate(outcomes).rate.value - float(listed["win_rate"])))
        error = 100 * float(np.nanstd(outcomes, ddof=1)) / math.sqrt(np.isfinite(outcomes).sum())
        worst_error = max(worst_error, abs(error - float(listed["standard_error"])))
        n_models += 1
    yield Row("models", 57, n_models)
    yield Row("largest difference of a win rate, points", 0, worst_rate, 1e-6)
    yield Row("largest difference of a standard error, points", 0, worst_error, 1e-6)
    yield from annotator(data)
    if find_spec("sklearn") is not None:
        yield from length_controlled_rates(data, board)


def annotator(data: Path) -> Iterator[Row]:
    """Stored raw completions of the annotator, read as an endpoint's answers, against the stored preferences."""
    n_read, worst = 0, 0.0
    for file in sorted((data / "annotations").glob("*.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            if row["raw_completion"] is None:
                continue  # two of claude-2.1's, whose calls failed
            completion = read_answer(200, {}, json.dumps({"choices": [row["raw_completion"]]}).encode())
            if isinstance(completion, WireProblem):
                raise Agent2Error(f"{file}: a stored completion cannot be read: {completion}")
            value = preference(completion, switched=is_switched(row["instruction"]))
            worst = max(worst, math.inf if value is None else abs(1 + value - float(row["preference"])))
            n_read += 1
    yield Row("stored raw completions read", 2413, n_read)
    yield Row("largest difference of a preference from the stored one", 0, worst, 1e-9)


def length_controlled_rates(data: Path, board: dict[str, dict[str, str]]) -> Iterator[Row]:
    """Against the published column, with the difficulty of the items estimated from the preferences of all models.

    The published difficulties are not at hand, and no preferences of the lengthened baseline. Without these, a model
    that games the length (`gpt4_gamed`) cannot be fitted as published; with the published coefficients it can be
    predicted.
    """
    rows = {row["model"]: row for row in lines(data / "prefs_lengths_57_models.jsonl") if row["model"] in board}
    items = max((row["len_1"] for row in rows.values()), key=len)
    names = [name for name in rows if board[name]["length_controlled_winrate"] and name != BASELINE]
    preferred, lengths = np.array([on_all_items(rows[name], items) for name in names]).swapaxes(0, 1)
    slopes = [standardised(lengths_of_model, items) for lengths_of_model in lengths]
    with (data / "lc_weights_baseline_gpt4_1106_preview.csv").open(encoding="utf-8") as file:
        weights: dict[str, tuple[float, float, float]] = {
            row.pop(""): tuple(map(float, row.values())) for row in csv.DictReader(file)
        }
    published = [float(board[name]["length_controlled_winrate"]) for name in names]
    coefficients = [weights[name] for name in names]
    jointly = estimate_difficulty(preferred, slopes)
    under_weights = estimate_difficulty(preferred, slopes, coefficients)
    predicted = [float(expit(times * under_weights + constant).mean()) for _, times, constant in coefficients]

    def fitted(difficulty: FloatArray) -> list[float]:
        pairs = zip(preferred, lengths, strict=True)
        return [length_controlled(preferred, length, items, difficulty).rate.value for preferred, length in pairs]

    for how, rates, allowed in (
        ("published coefficients, difficulty estimated under them", predicted, 0.002),
        ("coefficients fitted, difficulty estimated under the published ones", fitted(under_weights), UNCONSTRAINED),
        ("coefficients fitted, difficulty estimated jointly", fitted(jointly), UNCONSTRAINED),
    ):
        off = np.abs(100 * np.array(rates) - published)
        worst = f"largest: {names[int(off.argmax())]}, {off.max():.1f} points"
        yield Row(f"LC, {how}: Spearman", 1, float(spearmanr(rates, published).statistic), allowed, worst)
        yield Row(f"LC, {how}: median error, points", 0, float(np.median(off)), 0.8)
    if find_spec("alpaca_eval") is not None:
        yield from beside_the_official_function(preferred, lengths, items, jointly)


def on_all_items(row: dict[str, Any], items: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Preferences, 0 to 1, and lengths on all items; six models lack up to three, which show in the baseline's lengths.

    A missing one has no preference and the baseline's length.
    """
    preferred, lengths = np.full(len(items), math.nan), np.array(items, dtype=float)
    for block in SequenceMatcher(None, items, row["len_1"], autojunk=False).get_matching_blocks():
        place, stored_slice = slice(block.a, block.a + block.size), slice(block.b, block.b + block.size)
        preferred[place], lengths[place] = (
            np.array(row["preference"][stored_slice], dtype=float),
            row["len_2"][stored_slice],
        )
    return np.where(preferred == 0.0, 0.5, preferred - 1), lengths


def beside_the_official_function(
    preferred: FloatArray, lengths: FloatArray, items: Sequence[int], difficulty: FloatArray
) -> Iterator[Row]:
    """Five models by the function of the package `alpaca_eval`, both sides with the same local frame.

    The frame of the lengthened baseline, which the package would download, is replaced by the last two models here.
    """
    import pandas as pd
    from alpaca_eval.metrics import glm_winrate as official

    n, index = len(items), np.arange(len(items))
    whole = [number for number in range(len(preferred)) if np.isfinite(preferred[number]).all()]
    deltas = [np.array(items) - lengths[number] for number in whole[-2:]]
    pairs = BaselinePairs(
        np.concatenate([preferred[number] for number in whole[-2:]]),
        np.concatenate([standardised(lengths[number], items) for number in whole[-2:]]),
        np.tile(difficulty, 2),
    )
    state: dict[str, Any] = {
        "preference": pairs.preference,
        "index": np.tile(index, 2),
        "instruction_difficulty": pairs.difficulty,
    }
    state |= {
        "std_delta_len": np.concatenate([values / values.std(ddof=1) for values in deltas]),
        "not_gamed_baseline": False,
    }
    worst, seconds = 0.0, {"ours": 0.0, "official": 0.0, "interval": 0.0}
    with tempfile.NamedTemporaryFile(suffix=".csv") as frame:
        pd.DataFrame(state | {"model": "stand-in"}).to_csv(frame.name, index=False)
        official.hf_hub_download = lambda **options: frame.name
        for number in whole[:5]:
            texts = [["x" * int(length) for length in items], ["x" * int(length) for length in lengths[number]]]
            columns = {"preference": preferred[number] + 1, "output_1": texts[0], "output_2": texts[1]}
            names = {"generator_1": "baseline", "generator_2": "model", "annotator": "stored"}
            table = pd.DataFrame(columns | names | {"index": index})
            started = time.process_time()
            theirs = official.get_length_controlled_winrate(table, save_weights_dir=None)["length_controlled_winrate"]
            between = time.process_time()
            inputs = (preferred[number], lengths[number], items, difficulty, pairs)
            ours = 100 * length_controlled(*inputs, n_resamples=0).rate.value
            after = time.process_time()
            length_controlled(*inputs)
            seconds["official"] += (between - started) / 5
            seconds["ours"] += (after - between) / 5
            seconds["interval"] += (time.process_time() - after) / 5
            worst = max(worst, abs(ours - theirs))
    yield Row(f"LC, official function on {n} items: largest difference, points", 0, worst, 1e-6)
    yield Row("LC, CPU seconds for a fit", seconds["official"], seconds["ours"], math.inf, "expected: the official's")
    label, note = "LC, CPU seconds for a fit with our interval", "400 more fits; the official function gives none"
    yield Row(label, seconds["official"], seconds["interval"], math.inf, note)


def llmbar(data: Path) -> Iterator[Row]:
    """What `agent2 judge check` says of each judge under each prompt, in the published counting.

    A missing verdict is wrong there, and equal to another missing one; here it is in no rate.
    """
    pairs = read_pairs(data / "Natural")
    for folder in sorted((data / "Natural/evaluators").glob("*/*")):
        stated = json.loads((folder / "statistics.json").read_text(encoding="utf-8"))
        judged = read_verdicts(folder / "result.json", pairs)
        report, n = check_judge(judged), len(judged)
        name = f"{folder.parent.name} {folder.name}"
        both_missing = sum(verdict.shown_first is None and verdict.shown_second is None for verdict in judged)
        n_right = sum(
            accuracy.value * accuracy.n
            for accuracy in (report.accuracy_shown_first, report.accuracy_shown_second)
            if accuracy is not None
        )
        rates = {"equal": both_missing, "correct_both": 0}
        yield Row(
            f"{name}: accuracy, %", float(stated["correct_average"].strip("%")), 100 * n_right / (2 * n), tolerance=0.05
        )
        for key, estimate in (("equal", report.order_agreement), ("correct_both", report.both_right)):
            match = re.search(r"= ([\d.]+)%", stated[key])
            if match and estimate is not None:
                yield Row(
                    f"{name}: {key}, %", float(match[1]), 100 * (estimate.value * estimate.n + rates[key]) / n, 0.05
                )
        if report.kappa_orders is not None:
            note = f"{report.n_missing} missing verdicts count as '2' there" if report.n_missing else ""
            ours = report.kappa_orders.value
            yield Row(f"{name}: kappa of the orders", stated["kappa_agreement"], ours, 0.01 if note else 1e-9, note)


def tau_bench(data: Path) -> Iterator[Row]:
    """pass^k of 50 tasks with four trials each."""
    solved: dict[int, list[bool]] = defaultdict(list)
    for row in json.loads((data / "gpt-4o-airline.json").read_text(encoding="utf-8")):
        solved[row["task_id"]].append(row["reward"] == 1.0)
    n_correct, n_samples = [sum(row) for row in solved.values()], [len(row) for row in solved.values()]
    for k, expected in enumerate((0.420, 0.273, 0.220, 0.200), start=1):
        yield Row(f"pass^{k}", expected, pass_hat_k(n_correct, n_samples, k), 0.0005)


def mt_bench(data: Path) -> Iterator[Row]:
    """Questions as the benchmark reads them; GPT-4's ratings of one model, read from its words again."""
    yield Row("questions", 80, n_published("mt_bench", data))
    rows = lines(data / "gpt-4_single.jsonl")
    stated = [re.search(r"\[\[(\d+(?:\.\d+)?)\]\]", row["judgment"]) for row in rows]
    ratings = [math.nan if rating is None else float(rating[1]) for rating in stated]
    n_equal = sum(rating == row["score"] for rating, row in zip(ratings, rows, strict=True))
    yield Row("ratings in the judge's words", len(rows), n_equal)
    for turn in (1, 2):
        of_turn = [(rating, row["score"]) for rating, row in zip(ratings, rows, strict=True) if row["turn"] == turn]
        ours, expected = (float(np.mean(column)) for column in zip(*of_turn, strict=True))
        yield Row(f"mean rating of turn {turn}", expected, ours)


def webshop(data: Path) -> Iterator[Row]:
    """Rewards of human visits, combined from the parts that are stored beside them."""
    for path in sorted((data / "all_trajs").glob("*.jsonl")):
        end = lines(path)[-1]
        goal, parts = end["goal"], end["reward_info"]
        n_attributes, n_options = len(goal["attributes"]), len(goal["goal_options"])
        reward = PurchaseReward(
            parts["r_type"], parts["r_att"], parts.get("r_option"), parts["r_price"], n_attributes, n_options
        )
        yield Row(f"reward of visit {path.stem}", end["reward"], reward.total)


def open_rl_benchmark(data: Path) -> Iterator[Row]:
    """Means over games of human-normalised scores."""
    with (data / "cleanrl_vs_baselines_hns.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    columns = [[float(row[column].split()[0]) for row in rows] for column in (1, 2)]
    # The file has means over seeds, one number a game; twice the same run gives the same point values.
    rng = np.random.default_rng(RNG_SEED)
    for name, expected, compute in (("median", 0.796, median_over_tasks), ("mean", 4.546, mean_over_tasks)):
        value = compute([columns[0], columns[0]], rng, 100).estimate.value
        note = "the file gives each game to two digits"
        yield Row(f"{name} human-normalised score of PPO ({len(rows)} games)", expected, value, 0.005, note)


def inspect_logs(data: Path) -> Iterator[Row]:
    """Every log is read, and the mean of its scores and its standard error are those that it states."""
    n_read, n_logs, why = 0, 0, ""
    for path in sorted([*data.glob("*.json"), *data.glob("*.eval")]):
        if path.suffix == ".json" and isinstance(json.loads(path.read_text(encoding="utf-8")), list):
            NOT_SERVED[f"inspect_logs/{path.name}"] = "cases of a LaTeX scorer, no log; no scorer here judges LaTeX"
            continue
        n_logs += 1
        try:
            log = read_log(path, format_name="inspect")
        except Agent2Error as error:
            why = f"{path.name}: {str(error).removeprefix(f'{path}: ').partition(';')[0]}"
            if "needs inspect-ai" in why:
                n_logs -= 1
                NOT_SERVED["inspect_logs/*.eval"] = "reading .eval needs inspect-ai (the extra `inspect`)"
            continue
        n_read += 1
        values = [rollout.score.value for rollout in log.rollouts if rollout.score.value is not None]
        stated = _stated(path, log.scorer)
        if not values:
            note = f"read as {len(log.rollouts)} missing scores: nobody scored its samples"
            NOT_SERVED[f"inspect_logs/{path.name}, mean"] = note
        elif "accuracy" in stated or "mean" in stated:
            mean = stated.get("accuracy", stated.get("mean", math.nan))
            yield Row(f"{path.name}: {log.scorer}", mean, float(np.mean(values)), 1e-6)
            if stated.get("stderr"):
                standard_error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
                yield Row(f"{path.name}: standard error", stated["stderr"], standard_error, 1e-6)
    yield Row("logs read", n_logs, n_read, 0, why)


def _stated(path: Path, scorer: str) -> dict[str, float]:
    """The metrics that a log states for a scorer."""
    if path.suffix == ".json":
        log = json.loads(path.read_text(encoding="utf-8"))
    else:
        with zipfile.ZipFile(path) as opened:
            log = json.loads(opened.read("header.json"))
    for score in (log.get("results") or {}).get("scores", []):
        if score["name"] == scorer or score.get("scorer") == scorer:
            return {name: float(metric["value"]) for name, metric in score["metrics"].items()}
    return {}


def react(data: Path) -> Iterator[Row]:
    """The authors' prompts in the installed grammar."""
    examples = published_examples(data) or {}
    yield Row("examples read and understood by the installed engine", 12, sum(map(len, examples.values())))


def alfworld(archive: Path, n_games: int) -> Iterator[Row]:
    """The official walkthroughs on the real engine; n_games of each split, 0 for all."""
    with tempfile.TemporaryDirectory(prefix="agent2-alfworld-") as folder, tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have it
        opened.extractall(folder)
        benchmark = AlfworldChat(Path(folder))
        for split, name, n_published in (
            (Split.TEST_PRIVATE, "valid_unseen", 134),
            (Split.TEST_PUBLIC, "valid_seen", 140),
        ):
            n = min(n_games or n_published, n_published)
            won = 0
            for item in tracked(benchmark.items(split, n, b"published"), f"alfworld {name}"):
                game = Path(folder) / "json_2.1.1" / str(item.payload["trial"]) / "game.tw-pddl"
                world = benchmark.environment()
                world.reset(item, 0)
                for command in json.loads(game.read_text(encoding="utf-8"))["walkthrough"]:
                    if world.act(command).done:
                        break
                won += world.state()["won"] is True
            yield Row(f"{name}: games that their walkthrough wins, of the first {n} of {n_published}", n, won)


def tracked(work: Sequence[T], label: str) -> Iterable[T]:
    """The work, with a progress bar on stderr where that is a terminal."""
    return track(work, label, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def passed(items: Sequence[Question], programs: Sequence[tuple[int, str]], timeout_s: float = TIMEOUT_S) -> list[bool]:
    """Whether each program (number of its item, answer) passes; without a verdict it does not."""
    answers = [
        (Item(problem.id or "", Split.DEV, problem.prompt, problem.reference, problem.payload), code_of(text))
        for problem, text in ((items[number], text) for number, text in programs)
    ]
    with sandbox_runner(ScoringResources()) as runner:
        verdicts = PythonTestsScorer(timeout_s=timeout_s).verdicts_on(runner, answers)
    return [isinstance(verdict, ProgramVerdict) and verdict.score.value == 1.0 for verdict in verdicts]


def humaneval(folder: Path) -> Iterator[Row]:
    """Canonical solutions, and the example samples of the repository."""
    benchmark = HumanEval(folder)
    problems = benchmark.questions_in_file(Portion.TEST)
    right = passed(problems, [(number, problem.reference or "") for number, problem in enumerate(problems)])
    yield Row("canonical solutions that pass", len(problems), sum(right))
    (example,) = benchmark.questions(read_rows(folder / "example_problem.jsonl"))
    samples = [(0, row["completion"]) for row in lines(folder / "example_samples.jsonl")]
    yield Row("pass@1 of the example samples", 0.5, float(np.mean(passed([example], samples))))


def mbpp(folder: Path) -> Iterator[Row]:
    """The published programs."""
    problems = Mbpp(folder).questions_in_file(Portion.TEST)
    # One of them, problem 123, counts the divisors of 10,000 numbers: longer than a model's program gets.
    right = passed(
        problems, [(number, problem.reference or "") for number, problem in enumerate(problems)], timeout_s=60.0
    )
    yield Row("published programs that pass in a minute a test", len(problems), sum(right))


POSTTRAINBENCH = {
    "opus-4.6": 23.163,
    "gpt-5.2": 21.381,
    "opus-4.5": 17.139,
    "base models, zero shot": 7.528,
    "instruction-tuned by the models' makers": 51.136,
}


def posttrainbench(folder: Path) -> Iterator[Row]:
    """Aggregates of agents and of the two references, by the import of `agent2 leaderboard`."""
    scores = {row.name: 100 * row.score.value for row in read_published(folder).rows}
    for name, published in POSTTRAINBENCH.items():
        yield Row(f"weighted mean of {name}, %", published, scores[name], 1e-3)


SERVED: dict[str, Callable[[Path], Iterator[Row]]] = {
    "gsm8k": gsm8k,
    "math": mathematics,
    "svamp": svamp,
    "tora": tora,
    "bbh": bbh,
    "truthfulqa": truthfulqa,
    "mmlu_pro": mmlu_pro,
    "language": language,
    "bfcl": bfcl,
    "ifeval": ifeval,
    "alpaca_eval": alpaca_eval,
    "llmbar": llmbar,
    "tau_bench": tau_bench,
    "mt_bench": mt_bench,
    "webshop": webshop,
    "open_rl_benchmark": open_rl_benchmark,
    "inspect_logs": inspect_logs,
    "react": react,
    "humaneval": humaneval,
    "mbpp": mbpp,
    "posttrainbench": posttrainbench,
}
ARCHIVE = "alfworld_official.tar.gz"
NOT_SERVED = {
    "math (MATH test, MATH-500, AIME24 as answers)": "no outputs are published beside the problems",
    "bbh (21 tasks)": "their outputs are not published, only the metrics",
    "ifbench": "its instruction types are not IFEval's; no scorer checks them",
    "truthfulqa (answers)": "no outputs are published beside the questions",
    "bfcl (multi_turn)": "played with that repository's classes behind a bridge, by bridged_episodes.py",
    "bfcl (java, javascript)": "compared as code, with the official checker, by bfcl_agreement.py",
    "llmbar, kappa with the labels": "published ones code a verdict '2' as 0 and a label 2 as 2: no agreement",
    "webshop/human_goals, items_ins_v2_1000, goal_query_map": "the catalogue that they belong to is not here",
}


def readme_rows(data: Path) -> list[str]:
    """Folders that the table of DATA/README.md names, in its order; all that is served without one."""
    readme = data / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    named = [
        cell.strip() for line in text.split("\n") if line.startswith("|") for cell in line.split("|")[1].split(",")
    ]
    folders = [
        name.removesuffix(".tar.gz").removesuffix("_official") for name in named if re.fullmatch(r"[\w.]+", name)
    ]
    return [name for name in folders if name != "folder"] or [*SERVED, "alfworld"]


def measured(source: str, data: Path, n_games: int) -> Iterator[Row]:
    """The rows of one source; one that is off for what breaks."""
    try:
        if source == "alfworld":
            yield from alfworld(data / ARCHIVE, n_games)
        else:
            yield from SERVED[source](data / source)
    except Exception as error:  # boundary: one damaged file must not hide the numbers of the others
        yield Row(f"{type(error).__name__}: {error}", 0, math.nan, 0, "could not be computed")


def summary(source: str, rows: Sequence[Row], absent: str) -> str:
    """The line of one row of DATA/README.md."""
    reasons = [absent] if absent else []
    for name, why in NOT_SERVED.items():
        if re.split(r"[ ,/(]", name)[0] == source:
            reasons.append(why if name == source else f"{name.removeprefix(source).strip(' ,/')}: {why}")
    if not rows and not reasons:
        reasons = ["nothing here handles it: a new row, or another name"]
    off = sum(not row.is_met for row in rows)
    explained = sum(row.is_met and bool(row.note) and abs(row.ours - row.expected) > 1e-6 for row in rows)
    counts = f"{len(rows) - off - explained} equal, {explained} explained, {off} OFF"
    return f"{source:18} {counts if rows else 'not served':32} {'; '.join(reasons)}"


def main() -> int:
    """Print the table; 1 if a number is off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of official files")
    parser.add_argument("--only", nargs="+", choices=[*SERVED, "alfworld"], help="these sources alone")
    parser.add_argument("--games", type=int, default=0, help="official ALFWorld games of each split; 0: all 134 + 140")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"{arguments.data}: not a directory; pass the folder that contains gsm8k/, mmlu_pro/, ...")
    rows_of: dict[str, list[Row]] = {}
    absent: dict[str, str] = {}
    print(f"{'source':18} {'expected':>12} {'ours':>12} {'difference':>11}  what")
    there = [name for name in SERVED if (arguments.data / name).exists()]  # some are not in the table
    names = dict.fromkeys([*readme_rows(arguments.data), *there])
    sources = [name for name in names if not arguments.only or name in arguments.only]
    for name in sources:
        rows_of[name] = []
        place = arguments.data / (ARCHIVE if name == "alfworld" else name)
        if not place.exists():
            absent[name] = f"{place} is not there"
        elif name in SERVED or name == "alfworld":
            for row in measured(name, arguments.data, arguments.games):
                rows_of[name].append(row)
                note = f" ({row.note})" if row.note else ""
                print(
                    f"{name:18} {row.expected:12.6g} {row.ours:12.6g} {row.ours - row.expected:+11.3g}  "
                    f"{row.what}{note}{'' if row.is_met else '  OFF'}",
                    flush=True,
                )
    print(f"\n{'row of README':18} {'numbers':32} not served, and why")
    for name in sources:
        print(summary(name, rows_of[name], absent.get(name, "")))
    n_off = sum(not row.is_met for rows in rows_of.values() for row in rows)
    print(f"\n{n_off} of {sum(map(len, rows_of.values()))} numbers are further from their expectation than explained")
    return 1 if n_off else 0


if __name__ == "__main__":
    sys.exit(main())
