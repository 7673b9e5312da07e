"""Published questions with one right answer: MMLU, GPQA, ARC, TruthfulQA and BIG-Bench Hard, in their official layouts.

Each is a YAML file beside this module; what is here puts rows of the published layouts into one form. An item's kind
(`task_type`) is its subject, domain, category or task. Does NOT show worked examples, as most published figures do.
"""

from collections import Counter
from pathlib import Path
from string import ascii_uppercase

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values

HOME = Path(__file__).parent
PORTION_ENDINGS = ("_test", "_val", "_dev")
"""Of the names of MMLU's files."""
RIGHT = "Correct Answer"
"""The column of GPQA with the right option."""


class Mmlu(OfficialBenchmark):
    """MMLU, from the published CSV files, one for each subject, or from the Parquet files of its hub page."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "mmlu.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With subject, a number within it, and the right letter."""
        n_rows = Counter[str]()
        prepared = []
        for row in rows:
            subject = row.values.get("subject")
            if row.file.suffix == ".csv":
                subject = row.file.stem
                for ending in PORTION_ENDINGS:
                    subject = subject.removesuffix(ending)
            choices, answer = row.values.get("choices"), row.values.get("answer")
            if choices is None:
                choices = [row.values.get(letter) for letter in "ABCD"]
            if isinstance(answer, int) and 0 <= answer < len(ascii_uppercase):
                answer = ascii_uppercase[answer]
            n_rows[str(subject)] += 1
            number = f"{row.file.stem if row.file.suffix == '.csv' else subject}-{n_rows[str(subject)] - 1}"
            values = {"choices": choices, "answer": answer, KIND: subject, "number": number}
            prepared.append(with_values(row, **values))
        return prepared


class Gpqa(OfficialBenchmark):
    """GPQA, the diamond subset where its file is there."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "gpqa.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the domain, and the column of the right option."""
        return [with_values(row, right=RIGHT, **{KIND: row.values.get("High-level domain")}) for row in rows]


class _Arc(OfficialBenchmark):
    """What both sets share."""

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the question's text and its options, which the archive keeps in one record."""
        prepared = []
        for row in rows:
            question = row.values.get("question")
            if isinstance(question, dict):
                row = with_values(row, question=question.get("stem"), choices=question.get("choices"))
            prepared.append(row)
        return prepared


class ArcChallenge(_Arc):
    """The questions that retrieval and co-occurrence got wrong."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "arc_challenge.yaml", data=data)


class ArcEasy(_Arc):
    """The others."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "arc_easy.yaml", data=data)


class _TruthfulQa(OfficialBenchmark):
    """What both measures share."""

    has_one_right: bool

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With options, which of them are true (1), and the place of the first true one."""
        targets = "mc1_targets" if self.has_one_right else "mc2_targets"
        prepared = []
        for row in rows:
            marked = row.values.get(targets)
            if marked is None and "Question" in row.values:
                marked = self._marked(row)
            texts, marks = (list(marked), list(marked.values())) if isinstance(marked, dict) else (None, [])
            question = row.values.get("question", row.values.get("Question"))
            right = marks.index(1) if 1 in marks else None
            kind = row.values.get("Category", "all")
            values = {"question": question, "choices": texts, "marks": marks, "right": right, KIND: kind}
            prepared.append(with_values(row, **values))
        return prepared

    def _marked(self, row: Row) -> dict[str, int]:
        """Option -> whether it is true, of a row of TruthfulQA.csv."""
        best, *others = (
            [text.strip() for text in str(row.values.get(column) or "").split(";") if text.strip()]
            for column in ("Best Answer", "Correct Answers", "Incorrect Answers")
        )
        true, false = others
        answer = "; ".join(best)
        true = [answer] if self.has_one_right else [answer, *true]
        return dict.fromkeys(false, 0) | dict.fromkeys(true, 1)


class TruthfulQaMc1(_TruthfulQa):
    """One true option among false ones."""

    has_one_right = True

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "truthfulqa_mc1.yaml", data=data)


class TruthfulQaMc2(_TruthfulQa):
    """Several true options among false ones."""

    has_one_right = False

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "truthfulqa_mc2.yaml", data=data)


class BigBenchHard(OfficialBenchmark):
    """The 27 tasks."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "bbh.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the task, from the file's name, and the number within it."""
        return [
            with_values(row, **{KIND: row.file.stem, "number": f"{row.file.stem}-{row.number - 1}"}) for row in rows
        ]
