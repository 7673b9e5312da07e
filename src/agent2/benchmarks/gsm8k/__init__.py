"""The published GSM8K (Cobbe et al. 2021, arXiv:2110.14168): word problems with a final answer that must be parseable.

Of the 7,473 published training problems every tenth is dev (747), the others are train (6,726). Of the 1,319 test
problems a choice keyed by the installation secret puts 659 into test_public and 660 into test_private. A score counts
only answers whose last line `#### NUMBER` can be read; the view `flexible_match` says what would be right without it.
The verdicts are those of `agent2.scorers.answers`, which equal the published ones on the published solutions.

To play the whole test set, for a number beside published ones, or to read from the library `datasets`, write a
`benchmark.yaml` (docs/how-to/own-benchmark.md). What follows from the items being published:
`agent2.benchmarks.data_files`.
"""

import hashlib

from agent2.benchmarks.data_files import (
    OfficialFile,
    PublishedBenchmark,
    PublishedItem,
    Row,
    require_distinct_ids,
    train_or_dev,
)
from agent2.errors import ConfigError
from agent2.records import SamplingSettings, Scorer, Split, digest_of
from agent2.scorers.answers import FinalAnswerScorer, reference_value

_SOURCE = (
    "github.com/openai/grade-school-math (folder grade_school_math/data), or with: hf download openai/gsm8k "
    "--repo-type dataset --local-dir FOLDER"
)
_FIELDS = {"question": str, "answer": str}
TRAIN = OfficialFile("gsm8k", ("train.jsonl", "main/train-00000-of-00001.parquet"), _SOURCE, _FIELDS)
TEST = OfficialFile("gsm8k", ("test.jsonl", "main/test-00000-of-00001.parquet"), _SOURCE, _FIELDS)
INSTRUCTION = "Work it out step by step. End with a line that holds #### and the number alone."
DEV_EVERY = 10


class Gsm8k(PublishedBenchmark):
    """The published word problems."""

    name = "gsm8k"
    primary_metric = "exact_match"
    sampling = SamplingSettings(temperature=0.0, max_tokens=512)
    prompt_digest = digest_of(INSTRUCTION)

    def visible(self, split: Split) -> list[PublishedItem]:
        """Items of the training set."""
        return train_or_dev(require_distinct_ids([_problem(row) for row in TRAIN.rows(self.data)]), split, DEV_EVERY)

    def scored(self) -> list[PublishedItem]:
        """The test set."""
        return [_problem(row) for row in TEST.rows(self.data)]

    def scorer(self) -> Scorer:
        """The final answer, read strictly."""
        return FinalAnswerScorer()


def _problem(row: Row) -> PublishedItem:
    question, answer = row.values["question"], row.values["answer"]
    if reference_value(answer) is None:
        raise ConfigError(f"{row.where}: the answer has no line '#### NUMBER'; restore the published file")
    digest = hashlib.sha256(f"gsm8k item\0{question}".encode()).hexdigest()
    return PublishedItem(f"gsm8k-{digest[:16]}", row.where, f"{question}\n{INSTRUCTION}", answer, {})
