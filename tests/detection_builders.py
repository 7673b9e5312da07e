"""Drafts of `benchmark.yaml` for rows of a test, and what they refuse."""

import csv

import pytest
import yaml

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.detection import ColumnHints, draft_benchmark
from agent2.errors import ConfigError
from plugin_builders import write_rows

N_NEEDED = 110


def draft(folder, rows, name="own.jsonl", **hints):
    """The keys of the draft for rows, and the draft; it can be loaded beside the file."""
    path = write_rows(folder / name, rows) if name.endswith("jsonl") else rows
    written = draft_benchmark([path], folder, "own", N_NEEDED, ColumnHints(**hints))
    (folder / "benchmark.yaml").write_text(written.text)
    load_benchmark(str(folder))
    return yaml.safe_load(written.text), written


def refusal(folder, rows, name="own.jsonl", **hints):
    with pytest.raises(ConfigError) as refused:
        draft(folder, rows, name, **hints)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def questions(n, **fields):
    return [{"question": f"Question {k}?", **{name: value(k) for name, value in fields.items()}} for k in range(n)]


def four(k):
    return [f"{word} {k * 7 % 11}" for word in ("alder", "birch", "cedar", "dogwood")]


def write_table(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path
