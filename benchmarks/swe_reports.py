"""Published reports of SWE-bench's harness, read again: what was resolved, and what of the rest is missing for us.

    git clone https://github.com/pepealonso95/TDAD
    python benchmarks/swe_reports.py TDAD/claudecode_n_codex_swebench

Every JSON file below FOLDER that is a report of a run (`resolved_ids`, ...) or of one instance (`tests_status`) is read
as `agent2 cards import --format swe-bench` reads it. Of a run are compared the numbers that the report states:
resolved, not resolved, empty patches, errors, and the share of all submitted ones. Of an instance: `resolved`, as it is
stated and from its tests (all of FAIL_TO_PASS and of PASS_TO_PASS pass). A run whose lists contradict its numbers is
refused and named. Exits with 1 if a number differs.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent2.cards.imports import swe_bench
from agent2.cards.imports.source import LogSource
from agent2.errors import ConfigError

Pairs = Iterator[tuple[str, float, float]]
"""What, as published, and ours."""


def of_run(stated: Mapping[str, Any], path: Path) -> Pairs:
    """The numbers of one run. Raises ConfigError for a report that is refused."""
    scores = {record.rollout.item_id: record.score for record in swe_bench.read(LogSource(path)).rollouts}
    judged = {name: score.value for name, score in scores.items() if score.value is not None}
    empty = set(stated.get("empty_patch_ids", ()))
    yield "runs: resolved", stated["resolved_instances"], sum(judged.values())
    yield "runs: not resolved", stated["unresolved_instances"], sum(not judged[name] for name in judged.keys() - empty)
    yield "runs: empty patches, scored 0", stated["empty_patch_instances"], sum(not judged[name] for name in empty)
    is_lost = sum(score.value is None for name, score in scores.items() if name in set(stated["submitted_ids"]))
    yield "runs: errors, no score", stated["error_instances"], is_lost
    if submitted := stated["submitted_instances"]:
        share = stated["resolved_instances"] / submitted
        yield "runs: share of submitted", share, sum(judged.values()) / submitted


def of_instance(stated: Mapping[str, Any], path: Path) -> Pairs:
    """The verdict on one instance: as stated, as imported, and from its tests."""
    (record,) = swe_bench.read(LogSource(path)).rollouts
    (instance,) = stated.values()
    if record.score.value is not None:
        yield "instances: resolved, as stated", instance["resolved"], record.score.value
    tests = instance.get("tests_status")
    if tests:
        has_failed = any(tests[kind]["failure"] for kind in ("FAIL_TO_PASS", "PASS_TO_PASS"))
        yield "instances: resolved, by their tests", instance["resolved"], not has_failed


def pairs_of(path: Path) -> Pairs:
    """Of a file that is a report; nothing of another one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return
    if not isinstance(document, dict) or not swe_bench.recognises(LogSource(path)):
        return
    yield from of_run(document, path) if "resolved_ids" in document else of_instance(document, path)


def main() -> int:
    """Print a line for each number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    n, equal, stated, ours = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    refused = []
    for path in sorted(parser.parse_args().folder.rglob("*.json")):
        try:
            for what, published, computed in list(pairs_of(path)):
                n[what] += 1
                equal[what] += abs(published - computed) < 1e-12
                stated[what] += published
                ours[what] += computed
        except ConfigError as error:
            refused.append(f"{path}: {' '.join(str(error).split())}")
    print(f"{'number':40}{'reports':>8}{'published':>12}{'ours':>10}{'equal':>7}")
    for what in n:
        print(f"{what:40}{n[what]:8}{float(stated[what]):12.6g}{float(ours[what]):10.6g}{equal[what]:7}")
    for line in refused:
        print(f"refused: {line}")
    return 0 if n and n == equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
