"""Our answer extraction and instruction checks beside lm-eval's and inspect-evals' on the same answers.

    python benchmarks/scorers.py --peers-python PATH [--write-golden]
    python benchmarks/scorers.py                       (compares with the peers' verdicts that were kept)

The peers are not dependencies: `pip install lm-eval inspect-ai langdetect nltk immutabledict` into an environment of
its own, with NLTK's punkt_tab data where NLTK looks for it (`NLTK_DATA`), and `instruction_following_eval`
(github.com/josejg/instruction_following_eval, which inspect-evals' IFEval asks for) on its path to have that
judge too. Every disagreement falls into a class of `scorer_differences.py` with who is right and why; where a benchmark
publishes its own extraction, that is asked as arbiter. Exit code 1 if a disagreement is in no class, in one that calls
it our mistake, or in one whose verdict the arbiter denies.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent2.records import Item, Rollout, RolloutStatus, Scorer, Split, Usage
from agent2.scorers.answers import FinalAnswerScorer
from agent2.scorers.choice import ChoiceScorer
from agent2.scorers.constraints import ConstraintScorer
from scorer_answers import Case, all_cases
from scorer_differences import CLASSES, class_of, published

SCORERS: dict[str, Scorer] = {
    "number": FinalAnswerScorer(),
    "choice": ChoiceScorer("three_steps"),
    "instruction": ConstraintScorer(),
}
GOLDEN = Path(__file__).parent.parent / "tests" / "scorers" / "peer_verdicts.json"
COMPARED = {
    "number": {"lm_eval strict": "value", "lm_eval flexible": "flexible_match", "inspect": "flexible_match"},
    "choice": {"lm_eval": "value", "inspect": "value"},
    "instruction": {
        "lm_eval strict": "value",
        "lm_eval loose": "prompt_level_loose",
        "inspect strict": "value",
        "inspect loose": "prompt_level_loose",
    },
}
"""Kind of case -> peer -> the number of ours that answers the same question."""


@dataclass(frozen=True)
class Row:
    """One disagreement."""

    case: Case
    peer: str
    peer_verdict: Any
    """0, 1, null (differs from one asking to the next) or what it raised."""
    ours: float | None
    published: int | None
    why: str | None
    """Its class; None: unexplained."""

    def __str__(self) -> str:
        reference = f"{self.case.name} {self.case.arguments}" if self.case.name else self.case.reference
        return f"{self.peer} says {self.peer_verdict}, we {self.ours}: {self.case.answer!r} [{reference}]"


def our_numbers(case: Case) -> dict[str, float | None]:
    """The score and the views of one answer."""
    payload: dict[str, Any] = {"options": ["1", "2", "3", "4"]}
    if case.kind == "instruction":
        payload = {"instruction_id_list": [case.name], "kwargs": [case.arguments]}
    item = Item("case", Split.DEV, "", case.reference, payload)
    rollout = Rollout("case", 0, 0, RolloutStatus.COMPLETED, (), (), case.answer, {}, Usage())
    score = SCORERS[case.kind].score(item, rollout)
    return {"value": score.value, **score.views}


def ask_peers(python: str, cases: list[Case]) -> dict[str, Any]:
    """Runs `scorer_peers.py` with another interpreter. Raises CalledProcessError if it fails."""
    command = [python, str(Path(__file__).with_name("scorer_peers.py"))]
    request = json.dumps([asdict(case) for case in cases])
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    return dict(json.loads(done.stdout[done.stdout.index('{"versions"') :]))


def disagreements(cases: list[Case], verdicts: list[dict[str, Any]]) -> list[Row]:
    """One row for every case and peer that we do not agree with."""
    rows = []
    for case, peers in zip(cases, verdicts, strict=True):
        ours = our_numbers(case)
        for peer, key in COMPARED[case.kind].items():
            if peer in peers and peers[peer] != ours[key]:
                peer_verdict = peers[peer]
                why = class_of(case, peer, peer_verdict, ours[key])
                rows.append(Row(case, peer, peer_verdict, ours[key], published(case, peer, peer_verdict), why))
    return rows


def problems(rows: list[Row]) -> list[str]:
    """What is not settled: no class, a class in which we err, or one whose verdict the published definition denies."""
    sentences = []
    for row in rows:
        difference = CLASSES.get(row.why or "")
        if difference is None:
            sentences.append(f"unexplained: {row}")
        elif difference.right == "peer":
            sentences.append(f"our mistake ({row.why}): {row}")
        elif row.published is not None and row.published != (
            row.ours if difference.right == "ours" else row.peer_verdict
        ):
            sentences.append(f"called {difference.right}, but the published definition says {row.published}: {row}")
    return sentences


def report(cases: list[Case], golden: dict[str, Any], rows: list[Row], n_examples: int) -> None:
    """Prints counts by peer, then each class with its verdict and some answers."""
    print(", ".join(f"{name} {version}" for name, version in golden["versions"].items()))
    n_asked = Counter(
        (case.kind, peer) for case, peers in zip(cases, golden["verdicts"], strict=True) for peer in peers
    )
    apart = Counter((row.case.kind, row.peer) for row in rows)
    for (kind, peer), n in n_asked.items():
        print(f"{kind:12} {peer:17} {n:5} answers, {n - apart[kind, peer]:5} agree, {apart[kind, peer]:4} do not")
    for name, count in Counter(row.why for row in rows if row.why in CLASSES).most_common():
        difference = CLASSES[name or ""]
        print(f"\n{name} ({count}, right: {difference.right}). {difference.why}")
        for row in [row for row in rows if row.why == name][:n_examples]:
            print(f"   {row}")


def read_golden(path: Path) -> tuple[list[Case], dict[str, Any]]:
    """The cases and verdicts that were kept."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    cases = [Case(*line[:-1]) for line in stored["cases"]]
    verdicts = [
        dict(zip(COMPARED[case.kind], line[-1], strict=True)) for case, line in zip(cases, stored["cases"], strict=True)
    ]
    return cases, {"versions": stored["versions"], "verdicts": verdicts}


def write_golden(path: Path, cases: list[Case], golden: dict[str, Any]) -> None:
    """Kind, answer, reference, name, arguments and the peers' verdicts: one line a case, so that a change shows."""
    lines = [
        json.dumps([*asdict(case).values(), [peers[peer] for peer in COMPARED[case.kind]]], ensure_ascii=False)
        for case, peers in zip(cases, golden["verdicts"], strict=True)
    ]
    body = ",\n".join(lines)
    path.write_text(f'{{"versions": {json.dumps(golden["versions"])}, "cases": [\n{body}\n]}}\n', encoding="utf-8")


def main() -> int:
    """Compares, prints the table of classes, and keeps the verdicts if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", help="an interpreter with lm-eval and inspect-ai; else the kept verdicts")
    parser.add_argument("--golden", type=Path, default=GOLDEN, help="where the peers' verdicts are kept")
    parser.add_argument("--write-golden", action="store_true", help="keep what the peers say now")
    parser.add_argument("--examples", type=int, default=3, help="answers shown for each class")
    arguments = parser.parse_args()
    if arguments.peers_python:
        cases = all_cases()
        golden = ask_peers(arguments.peers_python, cases)
    else:
        cases, golden = read_golden(arguments.golden)
    rows = disagreements(cases, golden["verdicts"])
    report(cases, golden, rows, arguments.examples)
    open_ends = problems(rows)
    print(f"\n{len(cases)} answers, {len(rows)} disagreements, {len(open_ends)} of them not settled")
    for line in open_ends:
        print(f"   {line}")
    if arguments.write_golden and arguments.peers_python:
        write_golden(arguments.golden, cases, golden)
        print(arguments.golden)
    return int(bool(open_ends))


if __name__ == "__main__":
    sys.exit(main())
