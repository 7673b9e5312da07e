"""A suite around one benchmark, for `agent2 eval BENCHMARK`: its own score decides, and nothing else is asked.

Everything that is fixed comes from the benchmark (sampling, attempts, scorer, version with the digest of its source or
data), so two evaluations of one benchmark are under one contract. `agent2 suite freeze` writes it as a file that can be
edited; `--set` changes a value.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from agent2.benchmarks import BENCHMARKS, is_data_name, is_known, load_benchmark
from agent2.benchmarks.data import DataBenchmark, is_data_file
from agent2.config import read_yaml_text
from agent2.contract.shorthand import expand
from agent2.contract.suite import Suite
from agent2.contract.suite_files import load_suite, suite_names
from agent2.errors import ConfigError, unknown_name
from agent2.plugins import installed, is_code, is_located, known_names, relative_to
from agent2.records import Benchmark, emits_of

N_DEV, N_TEST = 100, 200
"""Items of a benchmark that generates them; of a data benchmark all are played."""
TOLERANCE, MARGIN = 0.03, 0.12
"""As in the packaged suites of this size."""


def open_contract(name: str, overrides: Sequence[str] = ()) -> Suite:
    """A suite by name or path, or a suite around the benchmark of that name or path.

    overrides: "a.b=value" on the suite. Raises ConfigError for a name of neither.
    """
    if name in suite_names() or name in installed("suite"):
        return load_suite(name, overrides)
    if is_known(name) or is_code(name) or (is_located(name) and is_data_file(Path(name).expanduser())):
        return suite_of(name, overrides)
    if is_located(name):
        if Path(name).is_dir():
            is_data_name(name, "eval")  # says what a folder lacks
        return load_suite(name, overrides)
    known = {*suite_names(), *known_names("suite"), *known_names("benchmark", BENCHMARKS)}
    if is_data_file(Path(name)):
        raise ConfigError(f"{name!r}: to use the folder of that name, write ./{name}")
    raise unknown_name("suite or benchmark", name, known)


def suite_of(name: str, overrides: Sequence[str] = ()) -> Suite:
    """The suite around one benchmark. Raises ConfigError as `load_benchmark` does."""
    benchmark = load_benchmark(name)
    is_data = isinstance(benchmark, DataBenchmark)
    metric = f"{benchmark.name}_{benchmark.primary_metric}"
    sampling, emits = benchmark.sampling, emits_of(benchmark.scorer())
    hidden = None if is_data else N_TEST
    labels = sorted(emits.labels) if emits is not None else []
    next_data = [f"add items like those of {benchmark.name} that were lost"]
    record = {
        "name": re.sub(r"[^a-z0-9_-]", "_", benchmark.name.lower()),
        "version": "v1.0",
        "track": "llm_core",
        "description": f"{benchmark.name} alone.",
        "control_group": {"kind": "sft", "checkpoint": None},
        "task_distribution": {
            "production_tasks": [{"name": benchmark.name, "difficulty": "medium", "benchmarks": [benchmark.name]}]
        },
        "protocol": {
            "sampling": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "n": benchmark.attempts,
                "max_tokens": sampling.max_tokens,
            }
        },
        "cadence": {
            "dev": {"split": "dev", "n_items": None if is_data else N_DEV},
            "nightly": {"split": "test_public", "n_items": hidden},
            "candidate": {"split": "test_private", "n_items": hidden, "spot_check": True},
        },
        "benchmarks": [
            {
                "name": benchmark.name,
                "version": benchmark.version,
                "source": relative_to(name, Path()) if not is_known(name) else None,
                "split": "test_public",
                "metric": metric,
                "n_items": hidden,
                "scorer": {"name": benchmark.scorer().name, "tier": _tier(benchmark)},
            }
        ],
        "metrics": [{"name": metric, "benchmark": benchmark.name, "role": "primary"}],
        "gates": [
            {"kind": "evidence", "name": "evidence"},
            {"kind": "release_evidence", "name": "release_evidence"},
            {
                "kind": "regression",
                "name": "primary_holds",
                "metrics": [metric],
                "tolerance": TOLERANCE,
                "margin": MARGIN,
                "on_fire": {
                    "release": "block",
                    "next_data": next_data,
                },
            },
        ],
        "failure_taxonomy": dict.fromkeys(labels or ["wrong_answer"], "data"),
    }
    return expand(read_yaml_text(yaml.safe_dump(record, sort_keys=False), f"suite around {name}", overrides)).suite


def _tier(benchmark: Benchmark) -> str:
    """What its verdicts rest on, as far as it can be told."""
    return "reference" if isinstance(benchmark, DataBenchmark) else "rules"
