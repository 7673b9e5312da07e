"""Competition mathematics from official or own files: MATH, MATH-500 and private sets in the style of AIME.

Each is a YAML file beside this module; what is here puts rows of the published layouts into one form. An item's kind
(`task_type`) is its subject. Answers are compared as expressions (`scorers.math_answer`).
"""

from pathlib import Path

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values

HOME = Path(__file__).parent
SUBJECT_FIELDS = ("type", "subject", "topic", "source")
"""Where a problem's subject is, in the order of preference."""


class _Problems(OfficialBenchmark):
    """What all share."""

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the problem, its subject and the answer as text."""
        prepared = []
        for row in rows:
            values = row.values
            subjects = (values[name] for name in SUBJECT_FIELDS if isinstance(values.get(name), str))
            answer = values.get("answer")
            is_number = isinstance(answer, int) and not isinstance(answer, bool)
            prepared.append(
                with_values(
                    row,
                    problem=values.get("problem", values.get("question")),
                    answer=str(answer) if is_number else answer,
                    level=values.get("level"),
                    **{KIND: next(subjects, "all")},
                )
            )
        return prepared


class CompetitionMath(_Problems):
    """MATH."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "math.yaml", data=data)


class CompetitionMath500(_Problems):
    """MATH-500."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file."""
        super().__init__(HOME / "math_500.yaml", data=data)


class AimePrivate(_Problems):
    """A private set in the style of AIME."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the file."""
        super().__init__(HOME / "aime_private.yaml", data=data)
