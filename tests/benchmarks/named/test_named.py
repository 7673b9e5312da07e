import shlex
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent2.analysis.selection import selection_table
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.named import PLAYED, NamedBenchmark, NamedStatus, chosen_rows, find_named, named_benchmarks
from agent2.cards.imports.formats import FORMATS
from agent2.errors import ConfigError

ROWS = list(named_benchmarks().values())


def row(**changes):
    values = {
        "title": "Quiz",
        "type": "math",
        "metrics": ["exact match"],
        "question": "is it right?",
        "scorer": "reference answer",
        "status": "recorded only",
        "sources": ["here"],
        **changes,
    }
    return NamedBenchmark.model_validate(values)


PACKAGE = {
    "name": "quiz",
    "version": "1.0",
    "file": "quiz-1.0-py3-none-any.whl",
    "sha256": "0" * 64,
    "bytes": 10,
    "members": {"quiz/items.jsonl": "items.jsonl"},
    "holds": "items",
}
HARNESS = {"command": "quiz run", "results": "results.json", "format": "inspect"}
OWN = {"status": "own files", "use": "agent2 benchmarks new FILE"}


def test_there_are_forty_one_rows_under_the_names_that_suites_use():
    assert len(ROWS) == 41
    table = selection_table()
    used = {table.first, *table.floors, *(name for failure in table.failures for name in failure.benchmarks)}
    assert used <= set(named_benchmarks())


@pytest.mark.parametrize("benchmark", [row for row in ROWS if row.status in PLAYED], ids=lambda row: row.name)
def test_what_is_called_native_is_a_benchmark_that_can_be_loaded(benchmark):
    assert benchmark.benchmark is not None
    assert load_benchmark(benchmark.benchmark).name == benchmark.benchmark


def test_every_bridge_writes_what_the_import_reads_and_every_command_is_one_of_agent2():
    assert {row.harness.format for row in ROWS if row.harness is not None} <= set(FORMATS)
    commands = [shlex.split(row.use) for row in ROWS if row.use is not None]
    assert {tuple(command[:3]) for command in commands} <= {
        ("agent2", "benchmarks", "new"),
        ("agent2", "judge", "check"),
        ("agent2", "score", "webarena_verified"),
    }
    assert all({"FILE", "FOLDER"} & set(command) for command in commands)


def test_what_is_recorded_only_claims_no_command_and_no_file():
    recorded = [row for row in ROWS if row.status is NamedStatus.RECORDED]
    assert recorded
    for benchmark in recorded:
        claimed = (benchmark.benchmark, benchmark.package, benchmark.harness, benchmark.use)
        assert claimed == (None, None, None, None), benchmark.name


def test_capabilities_are_lines_of_the_table_and_addresses_are_complete():
    lines = {line.name for line in selection_table().capability_lines}
    assert {row.capability for row in ROWS} - {None} == lines
    addresses = [url for row in ROWS for url in row.urls.model_dump().values() if url is not None]
    assert len(addresses) > 60 and all(url.startswith("https://") for url in addresses)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "native"}, "names a benchmark exactly if it is played here"),
        ({"benchmark": "quiz"}, "names a benchmark exactly if it is played here"),
        ({"status": "from a package", "benchmark": "quiz"}, "has a package if the status is 'from a package'"),
        ({"package": PACKAGE}, "has no package if it is recorded only"),
        ({"use": "agent2 benchmarks new FILE"}, "has a command exactly if the status is 'own files'"),
        ({"status": "bridge"}, "names a harness exactly if the status is 'bridge'"),
        (
            {
                "status": "own files",
                "use": "x FILE",
                "package": PACKAGE | {"members": {"items.jsonl": "../items.jsonl"}},
            },
            "leaves the folder of the benchmark",
        ),
        (
            {"status": "own files", "use": "x FILE", "package": PACKAGE | {"members": {"items.jsonl": "/items.jsonl"}}},
            "leaves the folder of the benchmark",
        ),
        ({"status": "bridge", "harness": HARNESS}, "either a package or a command that installs it"),
        (
            {"status": "bridge", "harness": HARNESS | {"package": "quiz", "install": "git clone"}},
            "either a package or a command that installs it",
        ),
    ],
)
def test_a_status_that_the_row_does_not_back_is_refused(changes, said):
    assert row().status is NamedStatus.RECORDED
    with pytest.raises(ValidationError, match=said):
        row(**changes)


def test_rows_are_chosen_by_type_and_status_and_found_under_either_name():
    assert [row.name for row in chosen_rows("math", "native")] == ["gsm8k", "math", "aime_private"]
    assert len(chosen_rows()) == 41
    played = next(row for row in ROWS if row.benchmark not in (None, row.name))
    assert find_named(played.benchmark) is find_named(played.name) is played
    assert find_named("arithmetic") is None
    with pytest.raises(ConfigError, match="--type: unknown type 'maths'; did you mean 'math'"):
        chosen_rows("maths")
    with pytest.raises(ConfigError, match="--status: unknown status 'natives'; did you mean 'native'"):
        chosen_rows(None, "natives")


def test_the_page_counts_the_rows_of_each_status():
    page = (Path(__file__).parents[3] / "docs" / "named-benchmarks.md").read_text("utf-8")
    counts = Counter(row.status.value for row in named_benchmarks().values())
    assert sum(counts.values()) == 41
    for status in NamedStatus:
        assert f"| {status.value} | {counts[status.value]} |" in page
