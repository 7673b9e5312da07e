"""The published MMLU-Pro (Wang et al. 2024, arXiv:2406.01574): questions of 14 subjects with up to ten options.

Read from the published test set; there is no train set. Of its 12,032 questions 159 repeat an earlier one, options and
answer included, and are left out, so that no question is in two splits. Every tenth of the rest is dev (1,187); a
choice keyed by the installation secret halves what remains (5,343 each). Asked without examples and with reasoning
first; the published protocol shows five worked examples of the same subject, so scores here do NOT compare with
published ones. What follows from the items being published: `agent2.benchmarks.data_files`.
"""

from string import ascii_uppercase

from agent2.benchmarks.data_files import OfficialFile, PublishedBenchmark, PublishedItem, Row, train_or_dev
from agent2.errors import ConfigError
from agent2.records import SamplingSettings, Scorer, Split, digest_of
from agent2.scorers.answers import ChoiceScorer

TEST = OfficialFile(
    "mmlu_pro",
    ("test.jsonl", "test-00000-of-00001.parquet"),
    "huggingface.co/datasets/TIGER-Lab/MMLU-Pro (folder data)",
    {"question_id": int, "question": str, "options": list, "answer": str, "answer_index": int, "category": str},
)
INSTRUCTION = 'Think step by step. End with "The answer is (X)", where X is the letter of the right option.'
DEV_EVERY = 10


class MmluPro(PublishedBenchmark):
    """The published questions."""

    name = "mmlu_pro"
    primary_metric = "accuracy"
    sampling = SamplingSettings(temperature=0.0, max_tokens=2048)
    prompt_digest = digest_of(INSTRUCTION)

    def visible(self, split: Split) -> list[PublishedItem]:
        """Dev; there is nothing to train on."""
        return train_or_dev(self.questions(), split, DEV_EVERY) if split is Split.DEV else []

    def scored(self) -> list[PublishedItem]:
        """All questions that are not dev."""
        return train_or_dev(self.questions(), Split.TRAIN, DEV_EVERY)

    def questions(self) -> list[PublishedItem]:
        """The distinct questions, in the order of the file. Raises ConfigError as `visible`."""
        first: dict[str, PublishedItem] = {}
        for row in TEST.rows(self.data):
            question = _question(row)
            first.setdefault(question.prompt, question)
        return list(first.values())

    def scorer(self) -> Scorer:
        """The chosen letter."""
        return ChoiceScorer()


def _question(row: Row) -> PublishedItem:
    values, options = row.values, [str(option) for option in row.values["options"]]
    index = values["answer_index"]
    if not 0 <= index < len(options) <= len(ascii_uppercase) or values["answer"] != ascii_uppercase[index]:
        raise ConfigError(
            f"{row.where}: answer {values['answer']!r} and answer_index {index} do not name the same one of "
            f"{len(options)} options; restore the published file"
        )
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
    return PublishedItem(
        id=f"mmlu_pro-{values['question_id']}",
        where=row.where,
        prompt=f"{values['question']}\n{listed}\n\n{INSTRUCTION}",
        reference=values["answer"],
        payload={"options": options, "category": values["category"]},
    )
