"""The published IFEval (Zhou et al. 2023, arXiv:2311.07911): prompts with instructions that a program verifies.

There are 541 prompts and no train set. By position in the file, two of five are dev (216); a choice keyed by the
installation secret puts 162 of the remaining ones into test_public and 163 into test_private. The prompt is sent as it
stands. The checks are those of `agent2.scorers.constraints`; docs/mini-benchmarks.md lists where they differ from the
published ones. What follows from the items being published: `agent2.benchmarks.data_files`.
"""

from agent2.benchmarks.data_files import OfficialFile, PublishedBenchmark, PublishedItem, Row, require_distinct_ids
from agent2.errors import ConfigError
from agent2.records import SamplingSettings, Scorer, Split
from agent2.scorers.constraints import ConstraintScorer, read_instructions

INPUT = OfficialFile(
    "ifeval",
    ("input_data.jsonl", "ifeval_input_data.jsonl"),
    "github.com/google-research/google-research (folder instruction_following_eval/data)",
    {"key": int, "prompt": str, "instruction_id_list": list, "kwargs": list},
)
DEV_POSITIONS = (1, 3)
"""Of each five prompts in the order of the file."""


class IfEval(PublishedBenchmark):
    """The published prompts."""

    name = "ifeval"
    primary_metric = "prompt_accuracy"
    sampling = SamplingSettings(temperature=0.0, max_tokens=1280)

    def visible(self, split: Split) -> list[PublishedItem]:
        """Dev; there is nothing to train on."""
        return [
            item for position, item in enumerate(self.prompts()) if position % 5 in DEV_POSITIONS and split is Split.DEV
        ]

    def scored(self) -> list[PublishedItem]:
        """All prompts that are not dev."""
        return [item for position, item in enumerate(self.prompts()) if position % 5 not in DEV_POSITIONS]

    def prompts(self) -> list[PublishedItem]:
        """All prompts, in the order of the file. Raises ConfigError as `visible`."""
        return require_distinct_ids([_prompt(row) for row in INPUT.rows(self.data)])

    def scorer(self) -> Scorer:
        """Checks each instruction."""
        return ConstraintScorer()


def _prompt(row: Row) -> PublishedItem:
    names, kwargs = row.values["instruction_id_list"], row.values["kwargs"]
    if not all(isinstance(name, str) for name in names) or not all(isinstance(arguments, dict) for arguments in kwargs):
        raise ConfigError(
            f"{row.where}: instruction_id_list has to hold names and kwargs mappings; restore the file as it is "
            f"published at {INPUT.source}"
        )
    instructions = read_instructions(names, kwargs, row.where)
    payload = {
        "instruction_id_list": [instruction.name for instruction in instructions],
        "kwargs": [dict(instruction.arguments) for instruction in instructions],
    }
    return PublishedItem(f"ifeval-{row.values['key']}", row.where, row.values["prompt"], None, payload)
