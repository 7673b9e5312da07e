"""Published questions about pictures: MMMU, MMBench, MathVista, ChartQA and DocVQA, in their official layouts.

Each is a YAML file beside this module; what is here puts rows of the published layouts into one form. Field names are
those that public harnesses read; the readers were tried on small files of ours in these layouts. Does NOT download.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.environments.option_orders import lettered

HOME = Path(__file__).parent
LETTERS = "ABCD"
"""The fields of MMBench's options."""
OPEN = "open"
CHOICE_INSTRUCTION = "Answer with the option's letter from the given choices directly."
OPEN_INSTRUCTION = "Answer the question using a single word or phrase."


class Mmmu(OfficialBenchmark):
    """MMMU's validation questions: multiple choice and open ones, up to seven pictures each."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "mmmu.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the whole prompt, the options as a list, the accepted answers, and the subject."""
        prepared = []
        for row in rows:
            options = _listed(row.values.get("options")) or []
            is_open = row.values.get("question_type") == OPEN
            if is_open:
                options = []
            answer = row.values.get("answer")
            question = str(row.values.get("question") or "")
            lines = [question, *([lettered(options)] if options else [])]
            instruction = OPEN_INSTRUCTION if is_open else CHOICE_INSTRUCTION
            values = {
                "asked": "\n".join([*lines, instruction]),
                "options": options,
                "answer": (_listed(answer) or answer) if is_open else answer,
                KIND: _subject(row),
            }
            prepared.append(with_values(row, **values))
        return prepared


class MmBench(OfficialBenchmark):
    """MMBench's dev questions, each in every order of its options; an item's kind is its L-3 ability."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "mmbench.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the options that there are, the hint before the question, its picture, and the ability."""
        pictures = {str(row.values.get("index")): row.values.get("image") for row in rows}
        prepared = []
        for row in rows:
            options = [text for letter in LETTERS if (text := _filled(row.values.get(letter))) is not None]
            hint, question = _filled(row.values.get("hint")), str(row.values.get("question") or "")
            values = {
                "asked": question if hint is None else f"{hint}\n{question}",
                "choices": options,
                "image": _mmbench_picture(row.values.get("image"), pictures),
                KIND: row.values.get("category"),
            }
            prepared.append(with_values(row, **values))
        return prepared


class MathVista(OfficialBenchmark):
    """MathVista's testmini."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "mathvista.yaml", data=data)


class ChartQa(OfficialBenchmark):
    """ChartQA's test questions, written by people and by a machine."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "chartqa.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With who wrote the question as its kind, and an id from its place, since the files have none."""
        return [with_values(row, number=str(row.number), **{KIND: row.values.get("type") or "unknown"}) for row in rows]


class DocVqa(OfficialBenchmark):
    """DocVQA's validation questions."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "docvqa.yaml", data=data)


def _listed(value: object) -> list[str] | None:
    """A list that a published file has as such, or as Python writes it; None for anything else."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(part) for part in value] if isinstance(value, list) else None


def _filled(value: object) -> str | None:
    """The text of a cell; None for one that is empty, which tables write as nothing or `nan`."""
    text = "" if value is None else str(value).strip()
    return None if text.lower() in ("", "nan") else text


def _mmbench_picture(value: object, pictures: Mapping[str, object]) -> object:
    """A picture as fields have it; the table writes base64, or the index of the row that has the same picture."""
    if isinstance(value, str) and value.strip().isdigit():
        value = pictures.get(value.strip())
    return f"data:;base64,{value}" if isinstance(value, str) and not value.startswith("data:") else value


def _subject(row: Row) -> str:
    """From the id, `validation_Art_Theory_12`, which is the only place that names it."""
    parts = str(row.values.get("id") or "").split("_")
    return "_".join(parts[1:-1]) or "all"
