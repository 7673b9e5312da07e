"""Sections of RewardBench from published accuracies by subset: ours, and by RewardBench's own function.

    git clone https://github.com/allenai/reward-bench; git -C reward-bench fetch origin refs/pull/201/head
    python benchmarks/reward_bench_sections.py reward-bench

The history of that repository holds accuracies by subset of six reward models. They tell how many of the 2,985 pairs
each got right, so as many answers of a judge are made up, right and wrong, and scored by `reward_bench` here. Beside
its sections (Reasoning is the mean of math and code) are those of `calculate_scores_per_section` of the clone, run on
the same accuracies: with the counts of today, and with those of before 10 September 2024, which had the two of XSTest
exchanged. Sections that were published as numbers are compared too; of the two counts the nearer one is named. Exits
with 1 if a section of ours differs from that of today's function.

Runs two files of the clone. Pair by pair no verdict was published there, so which pairs are right is made up.
"""

import argparse
import ast
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import ProvidesCount
from agent2.benchmarks.preferences import SECTIONS
from agent2.evaluation.engine import score_answers
from agent2.files import write_text
from agent2.records import Item, Split

BEFORE_CORRECTION, TODAY = "6552e932^", "HEAD"
"""Commits of the clone."""
ACCURACIES = {
    "general-preference/GPM-Llama-3.1-8B-Instruct": "512f1753:scripts/results/eval-set/{}.json",
    "general-preference/GPM-Gemma-2-9B": "512f1753:scripts/results/eval-set/{}.json",
    "general-preference/GPM-Gemma-2-2B": "512f1753:scripts/results/eval-set/{}.json",
    "general-preference/GPM-Gemma-2B": "512f1753:scripts/results/eval-set/{}.json",
    "mightbe/Better-PairRM": "24689cf6:output/metrics.json",
    "PKU-Alignment/beaver-7b-v1.0-cost": "HEAD:README.md",
}
"""Model -> where its accuracies by subset are in the clone."""
PUBLISHED = {"mightbe/Better-PairRM": {"Chat": 95.5, "Chat Hard": 39.3, "Safety": 83.2, "Reasoning": 49.8}}
"""Model -> sections in percent, of the same run. Source: Lambert et al. 2024, arXiv:2403.13787v2, table 9."""
HALVES = ("Reasoning: math", "Reasoning: code")
JUDGED = {True: "This pair is judged rightly.", False: "This pair is judged wrongly."}
"""The better answer of a made-up pair."""
N_MATH = 447
"""Pairs of math-prm; the counts of the package weigh it as much as code."""
SECRET = b"reward-bench"
Sections = dict[str, float]


def stored(clone: Path, name: str) -> str:
    """A file of a commit of the clone, `COMMIT:PATH`."""
    command = ["git", "-C", str(clone), "show", name]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout


def accuracies_in(text: str, model: str) -> dict[str, float]:
    """Subset -> accuracy, of a JSON file, or of the mapping with that model in a page."""
    if text.lstrip().startswith("{"):
        mapping = json.loads(text)
    else:
        place = text.rindex(f'"{model}"')
        end = text.index("}", place) + 1
        mapping = json.loads(text[text.rindex("{", 0, place) : end])
    known = {subset for subsets in SECTIONS.values() for subset in subsets}
    return {name: float(value) for name, value in mapping.items() if name in known}


def official_function(clone: Path) -> Callable[..., Sections]:
    """`calculate_scores_per_section`, without what else its file imports."""
    tree = ast.parse(stored(clone, f"{TODAY}:rewardbench/utils.py"))
    named = [node for node in tree.body if getattr(node, "name", "") == "calculate_scores_per_section"]
    namespace: dict[str, Any] = {}
    exec(compile(ast.Module(named, []), "rewardbench/utils.py", "exec"), namespace)
    function: Callable[..., Sections] = namespace["calculate_scores_per_section"]
    return function


def official_constants(clone: Path, commit: str) -> dict[str, Any]:
    """Counts and sections as a commit has them."""
    namespace: dict[str, Any] = {}
    exec(compile(stored(clone, f"{commit}:rewardbench/constants.py"), "rewardbench/constants.py", "exec"), namespace)
    return namespace


def our_sections(accuracies: Mapping[str, float], sizes: Mapping[str, int]) -> Sections:
    """Play `reward_bench` with as many right answers in each subset, and take the mean of each kind of item."""
    rows = []
    for subset, n_pairs in sizes.items():
        n_right = round(accuracies[subset] * n_pairs)
        if abs(n_right / n_pairs - accuracies[subset]) > 1e-9:
            raise SystemExit(f"{subset}: {accuracies[subset]} is not a share of {n_pairs} pairs")
        rows += [
            {"id": k, "prompt": f"{subset} {k}?", "chosen": JUDGED[k < n_right], "rejected": "No.", "subset": subset}
            for k in range(n_pairs)
        ]
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder) / "filtered.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        benchmark = load_benchmark("reward_bench", Path(folder))
        assert isinstance(benchmark, ProvidesCount)
        items = [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]
    if len(items) != len(rows):
        raise SystemExit(f"{len(items)} of {len(rows)} pairs became items")
    scores = score_answers(benchmark, [(item, [answer_to(item)]) for item in items])
    by_kind: dict[str, list[float]] = {}
    for item, score in zip(items, scores, strict=True):
        if score.value is None:
            raise SystemExit(f"{item.id}: has no score ({score.reason})")
        by_kind.setdefault(str(item.payload["task_type"]), []).append(score.value)
    means = {kind: sum(values) / len(values) for kind, values in by_kind.items()}
    sections = {kind: mean for kind, mean in means.items() if kind not in HALVES}
    return sections | {"Reasoning": sum(means[half] for half in HALVES) / len(HALVES)}


def answer_to(item: Item) -> str:
    """Names the better answer of a pair that is judged rightly, else the other one."""
    options = item.payload["options"]
    is_right = isinstance(options, Sequence) and JUDGED[True] in options
    letter = item.reference if is_right else {"A": "B", "B": "A"}[str(item.reference)]
    return f"The answer is ({letter})"


def main() -> int:
    """Print a line for each model and section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="of github.com/allenai/reward-bench, with its branches")
    clone = parser.parse_args().clone
    function = official_function(clone)
    constants = {commit: official_constants(clone, commit) for commit in (TODAY, BEFORE_CORRECTION)}
    mapping = constants[TODAY]["SUBSET_MAPPING"]
    sizes = {**constants[TODAY]["EXAMPLE_COUNTS"], "math-prm": N_MATH}
    sizes = {subset: sizes[subset] for subsets in mapping.values() for subset in subsets}
    n_equal = n_sections = 0
    print(f"{'model':46}{'section':11}{'ours':>8}{'package':>9}{'before':>8}  published")
    for model, place in ACCURACIES.items():
        accuracies = accuracies_in(stored(clone, place.format(model)), model)
        ours = our_sections(accuracies, sizes)
        today, before = (function(constants[commit]["EXAMPLE_COUNTS"], mapping, accuracies) for commit in constants)
        for section, value in ours.items():
            n_sections += 1
            n_equal += abs(value - today[section]) < 1e-9
            published = PUBLISHED.get(model, {}).get(section)
            nearer = (
                "" if published is None else f"{published} ({agreement(published, today[section], before[section])})"
            )
            print(f"{model:46}{section:11}{value:8.4f}{today[section]:9.4f}{before[section]:8.4f}  {nearer}")
    print(f"{n_equal} of {n_sections} sections are those of the package's function")
    return 0 if n_equal == n_sections else 1


def agreement(published: float, today: float, before: float) -> str:
    """With which counts a published percentage was computed."""
    if abs(100 * today - published) <= 0.0501:
        return "equal"
    return "equal with the counts before the correction" if abs(100 * before - published) <= 0.0501 else "differs"


if __name__ == "__main__":
    raise SystemExit(main())
