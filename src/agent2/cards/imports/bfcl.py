"""One category of BFCL: `BFCL_v4_CATEGORY_score.json` or `..._result.json`, each with the other one.

The score file lists only the entries that failed, the result file what the model answered; together they give each
entry a 1 or a 0, with the reason of the checker. The other file is looked for beside the one given and in the folder
`result` for `score`, or the reverse, as `bfcl evaluate` writes them. Without the score file the answers are read and
all scores are missing. An entry whose inference ended with an error is missing; BFCL counts it as any other answer (in
its irrelevance categories as a right one).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, UNSCORED, ForeignLog
from agent2.cards.imports.messages import first_line, turn_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout, Usage, token_count

VALID = "valid"
INFERENCE_ERROR = "Error during inference:"
NOT_SCORED = "the score file is not there; score the results with: bfcl evaluate"
_NAME = re.compile(r"BFCL_(?P<version>v\d+)_(?P<category>.+)_(?P<kind>score|result)\.json$")


class _BfclHeader(msgspec.Struct):
    accuracy: float
    correct_count: int
    total_count: int


class _BfclFailure(msgspec.Struct):
    id: str
    valid: bool = False
    error: Any = None
    error_type: str = ""


class _BfclAnswer(msgspec.Struct):
    id: str
    result: Any = None
    input_token_count: Any = None
    output_token_count: Any = None
    latency: Any = None
    traceback: str | None = None
    reasoning_content: Any = None


def recognises(source: LogSource) -> bool:
    """Whether a source begins with the header of a score file, or with an answer, under a name of BFCL."""
    if source.path.is_dir():
        return False
    row = source.head
    is_header = isinstance(row, dict) and {"accuracy", "correct_count", "total_count"} <= row.keys()
    is_answer = isinstance(row, dict) and {"id", "result"} <= row.keys()
    return (is_header or is_answer) and _NAME.search(source.path.name) is not None


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The entries of a category.

    Raises ConfigError for another layout, for a score file without its result file, and for two that differ in their
    entries.
    """
    path = source.path
    named = _NAME.search(path.name)
    if named is None:
        raise ConfigError(f"{path}: is not named as BFCL names its files, BFCL_v4_CATEGORY_score.json or _result.json")
    result_path, score_path = _pair(path, named["kind"])
    if result_path is None:
        raise ConfigError(
            f"{path}: lists only the entries that failed; put {path.name.replace('_score.', '_result.')} beside it"
        )
    answers = _answers(result_path)
    verdicts = None if score_path is None else _verdicts(score_path, result_path, [answer.id for answer in answers])
    metric = require_metric(choice, [UNSCORED if verdicts is None else VALID], path)
    records = [_record(answer, verdicts) for answer in answers]
    return ForeignLog(
        harness=f"bfcl {named['version']}",
        task=f"bfcl_{named['category']}-{named['version']}",
        model=_model(result_path),
        scorer=metric,
        questions=[(answer.id, "") for answer in answers],
        rollouts=records,
        settings={},
        attempts=1,
        lock={"files": [file.name for file in (result_path, score_path) if file is not None]},
        assumed=("model: the name of the folder", "prompts: not in the files"),
    )


def _pair(path: Path, kind: str) -> tuple[Path | None, Path | None]:
    """The result file and the score file, as far as they are there."""
    other_kind = "result" if kind == "score" else "score"
    name = path.name.replace(f"_{kind}.json", f"_{other_kind}.json")
    places = [path.with_name(name)]
    parts = path.absolute().parent.parts
    if kind in parts:
        last = len(parts) - 1 - parts[::-1].index(kind)
        places.append(Path(*parts[:last], other_kind, *parts[last + 1 :], name))
    partner = next((place for place in places if place.is_file()), None)
    return (path, partner) if kind == "result" else (partner, path)


def _model(path: Path) -> str:
    """The folder below `result`, in which slashes are underscores; else the folder of the file."""
    parts = path.absolute().parent.parts
    below = parts[len(parts) - parts[::-1].index("result") :] if "result" in parts else ()
    return below[0] if below else path.absolute().parent.name or UNKNOWN


def _answers(path: Path) -> list[_BfclAnswer]:
    answers = [shaped(row, _BfclAnswer, f"{path}:{number}") for number, row in LogSource(path).rows]
    counts = Counter(answer.id for answer in answers)
    if doubled := [entry_id for entry_id, n in counts.items() if n > 1]:
        raise ConfigError(
            f"{path}: entry {doubled[0]} is there {counts[doubled[0]]} times; remove the rows that are double"
        )
    if not answers:
        raise ConfigError(f"{path}: holds no answers; the run ended before the first one")
    return answers


def _verdicts(path: Path, result_path: Path, ids: list[str]) -> Mapping[str, _BfclFailure]:
    """The failures by entry. Raises ConfigError if the score file is of other results."""
    rows = LogSource(path).rows
    if not rows:
        raise ConfigError(f"{path}: is empty; score the results again with: bfcl evaluate")
    header = shaped(rows[0][1], _BfclHeader, f"{path}:{rows[0][0]}")
    failures = {
        failure.id: failure
        for failure in (shaped(row, _BfclFailure, f"{path}:{number}") for number, row in rows[1:])
        if not failure.valid
    }
    if strangers := sorted(set(failures) - set(ids)):
        raise ConfigError(f"{path}: entry {strangers[0]} is not in {result_path}; the files are of different runs")
    if header.total_count != len(ids) or header.total_count - header.correct_count != len(failures):
        raise ConfigError(
            f"{path}: states {header.correct_count} of {header.total_count} entries right and lists {len(failures)} "
            f"that failed, {result_path} has {len(ids)}; a file is cut off, or the files are of different runs"
        )
    return failures


def _record(answer: _BfclAnswer, verdicts: Mapping[str, _BfclFailure] | None) -> ScoredRollout:
    turns = [turn_of(text) for text in _texts(answer.result)]
    thought = answer.reasoning_content
    if len(turns) == 1 and isinstance(thought, str) and thought:
        turns = [turn_of(turns[0].action, thought)]
    score = _score(answer, verdicts)
    is_failed = score.fault is Fault.INFRASTRUCTURE
    rollout = Rollout(
        item_id=answer.id,
        attempt=0,
        seed=0,
        status=RolloutStatus.FAILED if is_failed else RolloutStatus.COMPLETED,
        prompt=[],
        turns=turns,
        answer=turns[-1].action if turns and not is_failed else None,
        state={},
        usage=_usage(answer),
        fault=Fault.INFRASTRUCTURE if is_failed else None,
        reason=score.reason if is_failed else "",
    )
    return ScoredRollout(rollout, score)


def _score(answer: _BfclAnswer, verdicts: Mapping[str, _BfclFailure] | None) -> Score:
    if answer.traceback is not None or (isinstance(answer.result, str) and answer.result.startswith(INFERENCE_ERROR)):
        return Score(None, first_line(str(answer.result)), Fault.INFRASTRUCTURE)
    if verdicts is None:
        return Score(None, NOT_SCORED, Fault.JUDGE)
    failure = verdicts.get(answer.id)
    if failure is None:
        return Score(1.0, "valid: it is not among the failures of the score file")
    error: Any = failure.error
    kind = failure.error_type
    if isinstance(error, dict):  # of categories with several turns
        error, kind = error.get("error_message"), str(error.get("error_type") or kind)
    text = " ".join(str(part) for part in error) if isinstance(error, list) else str(error or "")
    return Score(0.0, f"{kind or 'failed'}: {first_line(text)}")


def _texts(result: Any) -> Iterator[str]:
    """What the model wrote: one text, the calls of one message, or each step of each turn."""
    if isinstance(result, list) and result and all(isinstance(turn, list) for turn in result):
        for turn in result:
            for step in turn:
                yield step if isinstance(step, str) else json.dumps(step, ensure_ascii=False)
    else:
        yield result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _usage(answer: _BfclAnswer) -> Usage:
    prompt, completion = _total(answer.input_token_count), _total(answer.output_token_count)
    return Usage(token_count(prompt), token_count(completion), _total(answer.latency) or 0.0)


def _total(count: Any) -> float | None:
    """The sum of a number, or of lists of numbers; None if there is something else."""
    if isinstance(count, int | float):
        return float(count)
    if not isinstance(count, list) or not count:
        return None
    parts = [_total(part) for part in count]
    return None if None in parts else sum(part for part in parts if part is not None)
