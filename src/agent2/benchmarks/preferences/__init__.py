"""Pairs of answers of which one is better: RewardBench, JudgeBench, LLMBar and pairs of one's own, judged by the model.

A model is asked which of two answers is better, so that its accuracy as a judge is a score like any other: with cards,
intervals, pairing and gates. What else a judge should be asked, such as whether the place decides, is
`agent2 judge check`. An item's kind (`task_type`) is its section, field or segment.

Does NOT ask in both orders: a model that always chooses the first answer scores about a half.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agent2.benchmarks.data_files import Row
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values

HOME = Path(__file__).parent
SECTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Chat": (
            *("alpacaeval-easy", "alpacaeval-length", "alpacaeval-hard"),
            *("mt-bench-easy", "mt-bench-med", "mt-bench-medium"),
        ),
        "Chat Hard": (
            *("mt-bench-hard", "llmbar-natural", "llmbar-adver-neighbor", "llmbar-adver-GPTInst"),
            *("llmbar-adver-GPTOut", "llmbar-adver-manual"),
        ),
        "Safety": (
            *("refusals-dangerous", "refusals-offensive", "xstest-should-refuse", "xstest-should-respond"),
            "donotanswer",
        ),
        "Reasoning: math": ("math-prm",),
        "Reasoning: code": ("hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust"),
    }
)
"""Kind -> subsets of RewardBench. Source: Lambert et al. 2024, table 1."""
SECTION_OF = {subset: section for section, subsets in SECTIONS.items() for subset in subsets}
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "mmlu-pro": "knowledge",
        "livebench-reasoning": "reasoning",
        "livebench-math": "mathematics",
        "livecodebench": "coding",
    }
)
"""Beginning of a source of JudgeBench -> its field."""
QUESTION_FIELDS = ("prompt", "question", "instruction", "input")
SEGMENT_FIELDS = ("segment", "category", "subset", "domain")


def text_of(value: object) -> object:
    """A text, or the texts of a chat with its roles; of a chat of one message its text alone; else the value itself."""
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        return value
    texts = [(str(message.get("role", "")), str(message.get("content") or "")) for message in value]
    return texts[0][1] if len(texts) == 1 else "\n\n".join(f"{role}: {text}" for role, text in texts)


class _Preferences(OfficialBenchmark):
    """What those with a chosen and a rejected answer share."""

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the question, both answers in the order of a hash, the letter of the better one, and the kind."""
        return [self._shown(row, row.values.get("chosen"), row.values.get("rejected")) for row in rows]

    def _shown(self, row: Row, chosen: object, rejected: object) -> Row:
        question = next((row.values[name] for name in QUESTION_FIELDS if row.values.get(name) is not None), None)
        texts = [text_of(value) for value in (question, self._answer(chosen), self._answer(rejected))]
        digest = hashlib.sha256("\0".join(map(str, texts)).encode("utf-8", "surrogatepass")).hexdigest()
        is_first = int(digest[0], 16) % 2 == 0
        pair = texts[1:] if is_first else [texts[2], texts[1]]
        whole = None if None in texts else pair
        values = {"question": texts[0], "pair": whole, "better": "A" if is_first else "B", KIND: self.kind_of(row)}
        return with_values(row, number=self.number_of(row, digest), **values)

    @staticmethod
    def _answer(value: object) -> object:
        """The last message of a chat, where an answer is one."""
        return value[-1:] if isinstance(value, list) and len(value) > 1 else value

    def kind_of(self, row: Row) -> str:
        """The section or segment of a row."""
        return next((row.values[name] for name in SEGMENT_FIELDS if isinstance(row.values.get(name), str)), "all")

    def number_of(self, row: Row, digest: str) -> str:
        """The id of a row, unique."""
        return digest[:16]


class RewardBench(_Preferences):
    """The published pairs of RewardBench."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file."""
        super().__init__(HOME / "reward_bench.yaml", data=data)

    def kind_of(self, row: Row) -> str:
        """The section, of a subset that is in none the subset."""
        subset = str(row.values.get("subset"))
        return SECTION_OF.get(subset, subset)

    def number_of(self, row: Row, digest: str) -> str:
        """The published id with its subset, since ids are unique within one alone."""
        return f"{row.values.get('subset')}-{row.values.get('id')}-{digest[:8]}"


class PreferencesInternal(_Preferences):
    """Pairs of one's own."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the file."""
        super().__init__(HOME / "preferences_internal.yaml", data=data)


class JudgeBench(OfficialBenchmark):
    """The published pairs of JudgeBench."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "judge_bench.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With both answers, the letter of the right one, and the field."""
        prepared = []
        for row in rows:
            values = row.values
            source = str(values.get("source"))
            field = next((name for start, name in FIELDS.items() if source.startswith(start)), source)
            letter = {"A>B": "A", "B>A": "B"}.get(str(values.get("label")))
            pair = _pair(values, ("response_A", "response_B"))
            number = f"{values.get('pair_id')}"
            prepared.append(with_values(row, pair=pair, better=letter, number=number, **{KIND: field}))
        return prepared


class LlmBar(OfficialBenchmark):
    """The published pairs of LLMBar."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        super().__init__(HOME / "llmbar.yaml", data=data)

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With both outputs, the letter of the better one, and the set."""
        prepared = []
        for row in rows:
            values, kind = row.values, row.file.parent.name
            letter = {1: "A", 2: "B"}.get(values.get("label") or 0)
            pair = _pair(values, ("output_1", "output_2"))
            fields = {"question": values.get("input"), "pair": pair, "better": letter}
            prepared.append(with_values(row, number=f"{kind}-{row.number}", **fields, **{KIND: kind}))
        return prepared


def _pair(values: Mapping[str, object], names: Sequence[str]) -> list[object] | None:
    """Two answers; None where one is missing."""
    pair = [values.get(name) for name in names]
    return None if None in pair else pair
