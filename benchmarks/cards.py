"""Seconds and memory of a card with a million single-turn rollouts.

    python benchmarks/cards.py [--n 1000000] [--out cards.json] [--folder DIR]

Each phase runs in a process of its own, so that its peak memory is its own; seconds are wall clock around the call
alone, starting Python and loading the package left out, loading pyarrow and duckdb left in where a phase needs them.
Writing is what an evaluation does: append, each rollout handed to the kernel before the next. Rollouts are made while
writing; making them is measured beside it and is not part of the seconds.

Goals at a million: regrade under 10 s, first page of a query under 0.3 s, one rollout by id under 0.05 s, every phase
under 600 MB. Exit code 1 if one is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent2.cards.card import CardHeader, CountAs, ReportingRule
from agent2.cards.reader import find_rollouts, iter_rollouts, read_summary, validate_card
from agent2.cards.regrade import regrade
from agent2.cards.writer import CardWriter
from agent2.records import (
    EvaluationProtocol,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoredRollout,
    Split,
    StopReason,
    Turn,
    Usage,
)

MB_LIMIT = 600.0
LIMITS_S = {"regrade": 10.0, "query, first page": 0.3, "one rollout by id": 0.05}
FIRST_PAGE = "select item_id, value, answer from rollouts where value = 1"
AGGREGATE = "select stop_reason, count(*) n, avg(counted) score from rollouts group by all order by n desc"
SEARCH = "select item_id, answer from rollouts where contains(answer, '99') order by completion_tokens desc, item_id"


@dataclass(frozen=True)
class Row:
    """One phase."""

    phase: str
    seconds: float
    """Wall clock."""
    cpu_s: float
    """Processor time of the same call: what is left of the seconds on a busy machine."""
    mb: float
    """Peak resident memory of its process."""
    note: str


def make_rollout(number: int) -> ScoredRollout:
    """A short question and its answer: one in three right, one in fifty cut off, one in a thousand blank."""
    value = float(number % 3 == 0)
    answer = "" if number % 1000 == 999 else f"Step by step: {number} + {number % 97} = {number + number % 97}"
    stop = StopReason.LENGTH if number % 50 == 7 else StopReason.END
    n_tokens = 20 + number % 60
    rollout = Rollout(
        item_id=f"item-{number:08d}",
        attempt=0,
        seed=number,
        status=RolloutStatus.COMPLETED,
        prompt=[Message("user", f"What is {number} + {number % 97}? Answer with the number.")],
        turns=[Turn(answer, None, stop, 24, n_tokens)],
        answer=answer,
        state={"answer": answer},
        usage=Usage(24, n_tokens, 0.25),
    )
    score = Score(value, f"answer {number} against {number + number % 97}", None, {"answer_parsed": value})
    return ScoredRollout(rollout, score)


def header(n: int) -> CardHeader:
    """Of a card that holds n rollouts."""
    protocol = EvaluationProtocol(
        benchmark="sums-v1",
        split=Split.DEV,
        items_digest="0" * 64,
        sampling=SamplingSettings(),
        attempts=1,
        max_turns=1,
        environment="question-v1",
        scorer="exact-v1",
        dtype="float32",
        chat_template_digest="0" * 64,
    )
    return CardHeader("made-up", "0" * 64, protocol, ReportingRule(), {}, 0.0, planned_rollouts=n)


def write(folder: Path, n: int) -> str:
    """Append n rollouts."""
    with CardWriter(folder / "card", header(n)) as writer:
        for number in range(n):
            writer.append(make_rollout(number))
    return f"{(folder / 'card' / 'rollouts.jsonl').stat().st_size / 1e6:.0f} MB open"


def make_only(folder: Path, n: int) -> str:
    """What making the rollouts costs without a card."""
    for number in range(n):
        make_rollout(number)
    return "no card: to be taken off the line above"


def close(folder: Path, n: int) -> str:
    """Resume the card, as after a kill, and close it."""
    writer, _ = CardWriter.resume(folder / "card", header(n))
    started = time.process_time()
    writer.close()
    cpu_s = time.process_time() - started
    size = sum(file.stat().st_size for file in (folder / "card").iterdir())
    head = (folder / "card" / "card.json").stat().st_size
    return f"closing alone {cpu_s:.1f} s CPU; {size / 1e6:.0f} MB closed, card.json {head / 1e6:.2f} MB"


def read(folder: Path, n: int) -> str:
    """Every rollout, as records."""
    count = sum(1 for _ in iter_rollouts(folder / "card"))
    return f"{count} rollouts"


def summary(folder: Path, n: int) -> str:
    """The numbers, with the score of every item."""
    return f"{len(read_summary(folder / 'card').item_scores)} items"


def regrade_own(folder: Path, n: int) -> str:
    """Every stored number again, and another rule beside it."""
    rule = replace(ReportingRule(), truncated=CountAs.ZERO, empty=CountAs.MISSING)
    result = regrade(folder / "card", rule, max_changes=100)
    if result.differs_from_stored:
        raise RuntimeError(f"not reproduced: {result.differs_from_stored}")
    return f"{result.old.score.value:.4f} -> {result.new.score.value:.4f}, all stored numbers reproduced"


def query(sql: str) -> Callable[[Path, int], str]:
    """A page of twenty rows."""

    def run(folder: Path, n: int) -> str:
        from agent2.cards.query import CardQueries

        with CardQueries([folder]) as cards:
            page = cards.page(sql)
        return f"{len(page.rows)} rows, {'more follow' if page.has_more else 'the end'}"

    return run


def by_id(folder: Path, n: int) -> str:
    """One rollout from the middle."""
    item_id = f"item-{n // 2:08d}"
    ((line, record),) = find_rollouts(folder / "card", item_id)
    return f"line {line}: {record.rollout.answer!r}"


def validate(folder: Path, n: int) -> str:
    """Every byte and every number."""
    problems = validate_card(folder / "card")
    if problems:
        raise RuntimeError(problems[0])
    return "no problem"


PHASES: dict[str, Callable[[Path, int], str]] = {
    "write": write,
    "(making rollouts)": make_only,
    "resume and close": close,
    "read all": read,
    "read the summary": summary,
    "regrade": regrade_own,
    "query, first page": query(FIRST_PAGE),
    "query, aggregate": query(AGGREGATE),
    "query, search and sort": query(SEARCH),
    "one rollout by id": by_id,
    "validate": validate,
}


def run_phase(name: str, folder: Path, n: int) -> None:
    """In a process of its own: do it, print what it took."""
    started, cpu_begun = time.perf_counter(), time.process_time()
    note = PHASES[name](folder, n)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_begun
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(asdict(Row(name, seconds, cpu_s, mb, note))))


def measure(folder: Path, n: int) -> list[Row]:
    """All phases, each in its own process, in order."""
    rows = []
    print(f"{'phase':<24}{'seconds':>9}{'CPU s':>9}{'MB':>7}  note ({n} rollouts)")
    for name in PHASES:
        command = [sys.executable, __file__, "--phase", name, "--folder", str(folder), "--n", str(n)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"{name} failed: {ended.stderr}")
        row = Row(**json.loads(ended.stdout))
        rows.append(row)
        print(f"{row.phase:<24}{row.seconds:>9.3f}{row.cpu_s:>9.3f}{row.mb:>7.0f}  {row.note}", flush=True)
    return rows


def missed(rows: list[Row]) -> list[str]:
    """Goals that were not met, one sentence each."""
    slow = [row for row in rows if row.seconds > LIMITS_S.get(row.phase, float("inf"))]
    large = [row for row in rows if row.mb > MB_LIMIT]
    return [f"{row.phase} took {row.seconds:.2f} s, goal {LIMITS_S[row.phase]:g} s" for row in slow] + [
        f"{row.phase} took {row.mb:.0f} MB, goal {MB_LIMIT:g} MB" for row in large
    ]


def main() -> int:
    """Measure, print the table, say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000, help="rollouts on the card")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder if not given")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    parser.add_argument("--phase", choices=list(PHASES), help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.phase:
        run_phase(arguments.phase, arguments.folder, arguments.n)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = measure(Path(folder), arguments.n)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        print(arguments.out)
    for sentence in missed(rows):
        print(f"missed: {sentence}")
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
