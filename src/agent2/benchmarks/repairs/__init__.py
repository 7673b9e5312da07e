"""SWE-bench and SWE-bench Verified from an official file and clones: patches judged by tests in the local sandbox.

An item's kind (`task_type`) is its repository. Does NOT build the published images (`scorers.patch_tests` says what
follows from that).
"""

import json
from pathlib import Path

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.home import Players
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.records import Item, Scorer
from agent2.scorers.patch_tests import PatchTestsScorer

HOME = Path(__file__).parent
CLONES = "repos"
"""Folder of the clones, beside the file."""
N_PLAYED = 20
"""Items that a check plays: each runs a repository's tests."""


class _Repairs(OfficialBenchmark):
    """What both share."""

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the name of the clone, the lists of tests, and the published patch as an answer."""
        prepared = []
        for row in rows:
            values = row.values
            name = str(values.get("repo") or "")
            prepared.append(
                with_values(
                    row,
                    repository=name.replace("/", "__") if name.count("/") == 1 and ".." not in name else None,
                    gold=f"```diff\n{str(values.get('patch') or '').rstrip()}\n```",
                    fail_to_pass=_names(values.get("FAIL_TO_PASS")),
                    pass_to_pass=_names(values.get("PASS_TO_PASS")),
                    **{KIND: name},
                )
            )
        return prepared

    def scorer(self) -> Scorer:
        """Runs the tests of the clones beside the file."""
        scorer: Scorer = PatchTestsScorer(self.official_file(Portion.TEST).folder(self.data) / CLONES)
        return scorer

    def players(self) -> Players:
        """The published patch, and none at all."""
        return Players(_gold, lambda items: _nothing, n_played=N_PLAYED)


class SweBench(_Repairs):
    """SWE-bench."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file and the clones."""
        super().__init__(HOME / "swe_bench.yaml", data=data)


class SweBenchVerified(_Repairs):
    """SWE-bench Verified."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file and the clones."""
        super().__init__(HOME / "swebench_verified.yaml", data=data)


def _gold(item: Item, chat: object) -> str:
    return item.reference or ""


def _nothing(item: Item, chat: object) -> str:
    return "I don't know."


def _names(value: object) -> list[str] | None:
    """Names of tests, as a list or as JSON of one; None: another layout."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return [str(name) for name in value] if isinstance(value, list) else None
