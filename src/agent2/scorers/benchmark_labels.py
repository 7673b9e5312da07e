"""Badcase classes that begin with a benchmark's name: `mmlu_wrong_choice` of MMLU, `gpqa_wrong_choice` of GPQA.

A scorer of this kind was written for one benchmark and names its classes after it, and so for the others of its family
(`is_written_for`). Where it scores anything else, packaged or a user's own data, the classes take the name of that.
Cards that were scored before this rule carry the scorer's own names; they are translated when the card is read
(`scorers.labels_by_older_name`).
"""

from dataclasses import replace

from agent2.records import DANGER_PREFIX, ScorerOutput


def label_prefix_of(benchmark: str) -> str:
    """What the classes of a benchmark begin with."""
    # A wrong answer to questions about safety is no dangerous action.
    return f"benchmark_{benchmark}_" if f"{benchmark}_".startswith(DANGER_PREFIX) else f"{benchmark}_"


class BenchmarkLabels:
    """Base of scorers whose classes begin with the name of the benchmark that is scored."""

    label_prefix: str
    """On the class: what the declared classes begin with, the name of the benchmark that the scorer was written for."""
    also_for: frozenset[str] = frozenset()
    """On the class: packaged benchmarks of other names whose classes begin so, too."""
    emits: ScorerOutput

    @classmethod
    def is_written_for(cls, benchmark: str) -> bool:
        """Whether the classes of a packaged benchmark begin so: one of the family, or a small one in its place."""
        is_family = f"{benchmark}_".startswith(cls.label_prefix) or benchmark.startswith("mini_")
        return is_family or benchmark in cls.also_for

    def name_labels_after(self, benchmark: str) -> None:
        """Give the classes of this scorer the name of a benchmark."""
        emits = type(self).emits
        self.label_prefix = label_prefix_of(benchmark)
        self.emits = replace(emits, labels=frozenset(map(self.label, emits.labels)))

    def label(self, declared: str) -> str:
        """A class as the benchmark names it. declared: as the scorer's class declares it."""
        return self.label_prefix + declared.removeprefix(type(self).label_prefix)
