"""A suite of two small benchmarks and players for it, for tests of suite evaluations: no model, no time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from agent2.contract.suite import Suite
from agent2.contract.suite_files import load_suite
from agent2.environments import QuestionEnvironment
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.models.sources import find_checkpoint
from agent2.records import Item, SamplingSettings, Score, Split, digest_of

SUITE = """
name: quiz_regression
version: v1.0
track: llm_core
description: Two small benchmarks for tests.
control_group: {kind: sft, checkpoint: null}
task_distribution:
  production_tasks:
    - {name: sums, difficulty: easy, benchmarks: [sums, doubles]}
protocol:
  sampling: {temperature: 0.0, top_p: 1.0, n: 1, max_tokens: 16}
cadence:
  dev: {split: dev, n_items: 100}
  nightly: {split: test_public, n_items: 100}
  candidate: {split: test_private, n_items: 100, spot_check: true}
benchmarks:
  - {name: sums, split: test_public, metric: sums_accuracy, n_items: 60, scorer: {name: equal, tier: reference}}
  - name: doubles
    split: test_public
    metric: doubles_accuracy
    n_items: 60
    scorer: {name: equal, tier: reference}
    requires: [{benchmark: sums, at_least: 0.3}]
metrics:
  - {name: sums_accuracy, benchmark: sums, role: primary}
  - {name: doubles_accuracy, benchmark: doubles, role: regression_gate}
  - {name: sums_words_rate, benchmark: sums, measure: view:is_wordy, direction: lower}
gates:
  - {kind: evidence, name: evidence}
  - {kind: regression, name: sums_hold, metrics: [sums_accuracy], tolerance: 0.05, margin: 0.2}
  - {kind: regression, name: doubles_hold, metrics: [doubles_accuracy], tolerance: 0.05, margin: 0.2}
failure_taxonomy: {wrong_sum: data, wordy: reward}
"""


def write_suite(folder: Path, *changes: tuple[str, str]) -> Path:
    """The suite as a file; each change replaces one text of it by another."""
    text = SUITE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "quiz_regression.yaml"
    path.write_text(text)
    return path


def make_suite(folder: Path, *changes: tuple[str, str]) -> Suite:
    """The suite itself."""
    return load_suite(str(write_suite(folder, *changes)))


class Equal:
    """Right if the answer is the reference; counts words."""

    name, version = "equal", "1.0"

    def score(self, item, rollout):
        is_right, is_wordy = rollout.answer == item.reference, " " in (rollout.answer or "")
        labels = (*(() if is_right else ("wrong_sum",)), *(("wordy",) if is_wordy else ()))
        views = {"is_wordy": float(is_wordy)}
        return Score(float(is_right), "compared", views=views, labels=labels, extracted=rollout.answer)


class Sums:
    """Sums of two numbers; those of a hidden split depend on the secret."""

    name, version, primary_metric, max_turns, attempts = "sums", "1.0", "accuracy", 1, 1
    sampling = SamplingSettings()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        start = {Split.DEV: 0, Split.TEST_PUBLIC: 1000, Split.TEST_PRIVATE: 2000}[split]
        key = digest_of([split, secret.hex() if secret else None])[:8]
        return [self.item(f"{self.name}-{key}-{k:04}", split, start + k) for k in range(n)]

    def item(self, item_id: str, split: Split, number: int) -> Item:
        return Item(item_id, split, f"{number} + 1", str(number + 1))

    def environment(self):
        return QuestionEnvironment()

    def scorer(self):
        return Equal()

    def environment_version(self) -> str:
        return "question-v1.0"


class Doubles(Sums):
    """Twice a number."""

    name = "doubles"

    def item(self, item_id: str, split: Split, number: int) -> Item:
        return Item(item_id, split, f"2 * {number}", str(2 * number))


def find_benchmark(name: str) -> Sums:
    """The benchmarks of the suite."""
    return {"sums": Sums, "doubles": Doubles}[name]()


PLAYERS = '''
import hashlib


def lot(text):
    """0 to 99, the same for the same text."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 100


def right(text):
    left, sign, other = text.split()
    return str(int(left) + int(other) if sign == "+" else int(left) * int(other))


def weak(messages):
    """Right about half of the time."""
    text = messages[-1].content
    return right(text) if lot(text) < 50 else "7"


def strong(messages):
    """Right where `weak` is, and mostly elsewhere; wrong in a few places where `weak` is right."""
    text = messages[-1].content
    return right(text) if 4 <= lot(text) < 85 else "no idea"


def broken(messages):
    """Never right."""
    return "nothing"


def one_sided(messages):
    """Better at sums, bad at doubles."""
    text = messages[-1].content
    return right(text) if "+" in text else "7"
'''


def write_players(folder: Path) -> Path:
    """A file of scripted players."""
    path = folder / "players.py"
    path.write_text(PLAYERS)
    return path


def make_request(
    folder: Path, *changes: tuple[str, str], old: str = "weak", new: str = "strong", out: str = "e", **fields: Any
) -> SuiteRequest:
    """The evaluation of two players of `write_players`, to be played into `folder / out`; changes: of the suite."""
    sides = [find_checkpoint(f"scripted:{folder / 'players.py'}:{name}") for name in (old, new)]
    request = SuiteRequest(make_suite(folder, *changes), *sides, folder / out, find_benchmark=find_benchmark)
    return replace(request, **fields)
