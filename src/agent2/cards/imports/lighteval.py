"""Details of lighteval: `details_TASK_TIME.parquet` (`--save-details`), with `results_TIME.json` of the same run.

One row is one sample; the first of its metrics is the score, unless another is chosen, the others are views. The
results file is looked for where lighteval writes it: `results/MODEL/` beside `details/MODEL/TIME/`. Two layouts are
read: the records `doc`, `model_response` and `metric` (0.11 and later), and the flat columns before (`predictions`,
`metrics`).

Several responses to one sample are one rollout with the first of them as its message, since lighteval's metric is one
number over all; the others are in its state. Of a comparison of log-probabilities these are the message. What a metric
of the whole corpus keeps for each sample is no number and becomes a missing view. Seconds are not known.
"""

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.cards.imports.foreign_log import UNKNOWN, ForeignLog, options_in_state, stated_score
from agent2.cards.imports.messages import turn_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric
from agent2.errors import ConfigError
from agent2.foreign_files import open_regular, require_no_bomb
from agent2.records import JsonValue, Message, Rollout, RolloutStatus, ScoredRollout, Usage

SUFFIX = ".parquet"
BATCH_ROWS = 256
_NAME = re.compile(r"details_(?P<task>.+)_(?P<time>\d{4}-\d{2}-\d{2}T[\d.-]+)\.parquet$")
_RECORDS = frozenset({"doc", "model_response", "metric"})
_FLAT = frozenset({"predictions", "metrics", "gold"})


def recognises(source: LogSource) -> bool:
    """Whether a source is a table of details, a folder with one, or the results of a run."""
    if source.path.is_dir():
        return any(source.path.glob(f"details_*{SUFFIX}"))
    if source.path.suffix == SUFFIX:
        columns = _columns(source.path)
        return columns >= _RECORDS or columns >= _FLAT
    return isinstance(source.head, dict) and {"config_general", "results"} <= source.head.keys()


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The samples of one task.

    Raises ConfigError for a folder of several tasks, for results without samples and for an unknown metric.
    """
    path = _details_in(source.path)
    columns = _columns(path)
    if not (columns >= _RECORDS or columns >= _FLAT):
        raise ConfigError(
            f"{path}: is no table of lighteval's details (it has neither doc, model_response and metric nor "
            "predictions, metrics and gold); give details_*.parquet"
        )
    samples = [_Sample.from_records(row) if columns >= _RECORDS else _Sample.from_flat(row) for row in _rows(path)]
    if not samples:
        raise ConfigError(f"{path}: holds no samples")
    named = _NAME.search(path.name)
    task = named["task"] if named else path.stem
    results = _results(path, named["time"] if named else "")
    metric = require_metric(choice, dict.fromkeys(name for sample in samples for name in sample.metrics), path)
    n_attempts: Counter[str] = Counter()
    records = []
    for index, sample in enumerate(samples):
        item_id = f"{task}-{sample.id or index}"
        records.append(_record(sample, item_id, n_attempts[item_id], metric))
        n_attempts[item_id] += 1
    config = results.get("config_general", {})
    return ForeignLog(
        harness=f"lighteval {str(config.get('lighteval_sha') or 'of unknown version')[:18]}",
        task=f"{task}-v{results.get('versions', {}).get(task, UNKNOWN)}",
        model=str(config.get("model_name") or _model_of(path) or "not stated"),
        scorer=metric,
        questions=[(f"{task}-{sample.id or index}", sample.question) for index, sample in enumerate(samples)],
        rollouts=records,
        settings=_settings(config, samples),
        attempts=max(n_attempts.values()),
        lock={"max_samples": config.get("max_samples"), "lighteval_sha": config.get("lighteval_sha")},
        assumed=["seconds: 0, lighteval does not log them"],
    )


def _details_in(path: Path) -> Path:
    if path.is_dir():
        tables = sorted(path.glob(f"details_*{SUFFIX}"))
        if len(tables) > 1:
            listed = ", ".join(table.name for table in tables[:5]) + (", ..." if len(tables) > 5 else "")
            raise ConfigError(f"{path}: holds the details of {len(tables)} tasks; give one of them: {listed}")
        return tables[0]
    if path.suffix != SUFFIX:
        raise ConfigError(
            f"{path}: has the results of lighteval and no samples; give details_*.parquet of the run (--save-details), "
            "which lighteval writes to details/MODEL/TIME"
        )
    return path


def _columns(path: Path) -> frozenset[str]:
    import pyarrow  # here: it takes a quarter of a second that no other format needs
    import pyarrow.parquet

    try:
        with open_regular(path, follow=True) as stored:
            return frozenset(pyarrow.parquet.read_schema(stored).names)
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow  # as above
    import pyarrow.parquet

    unpacked_bytes = 0
    try:
        with open_regular(path, follow=True) as stored, pyarrow.parquet.ParquetFile(stored) as table:
            packed_bytes = os.fstat(stored.fileno()).st_size
            for batch in table.iter_batches(BATCH_ROWS):
                unpacked_bytes += batch.nbytes
                require_no_bomb(path, packed_bytes, unpacked_bytes)
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
    return ConfigError(f"{path}: not a readable Parquet file ({reason}); give the file as lighteval wrote it")


def _model_of(path: Path) -> str | None:
    """The model by the folders, `details/MODEL/TIME`; None: the file is somewhere else."""
    parts = path.resolve().parts
    if "details" not in parts:
        return None
    last = len(parts) - 1 - parts[::-1].index("details")
    return "/".join(parts[last + 1 : -2]) or None


def _results(path: Path, time: str) -> dict[str, Any]:
    """The results of the same run; empty if they are not where lighteval writes them, nor beside the details."""
    folder, model = path.resolve().parent, _model_of(path)
    candidates = [folder / f"results_{time}.json"]
    if model is not None:
        top = folder.parents[len(Path(model).parts)]
        candidates.append(top.parent / "results" / model / f"results_{time}.json")
    for file in candidates:
        if file.is_file():
            results = document_of(file)
            return results if isinstance(results, dict) else {}
    return {}


@dataclass(frozen=True, slots=True)
class _Sample:
    """One sample, of either layout."""

    id: str
    prompt: Sequence[Message]
    question: str
    """For the digest of the items: the query and what is right."""
    texts: Sequence[str]
    thought: str
    """Kept apart by lighteval; empty: it is not."""
    answer: str | None
    """The first text without its thought, where lighteval took it away."""
    logprobs: Sequence[float]
    metrics: Mapping[str, float | None]
    state: Mapping[str, JsonValue]
    usage: Usage
    n_new_tokens: int | None
    """Most tokens that could be written; None: not stated."""

    @classmethod
    def from_records(cls, row: Mapping[str, Any]) -> "_Sample":
        """A row of `doc`, `model_response` and `metric`."""
        doc, response = row["doc"], row["model_response"]
        processed = response.get("text_post_processed")
        return cls(
            id=str(doc.get("id") or ""),
            prompt=_prompt(response.get("input"), doc.get("instruction"), doc["query"]),
            question=json.dumps([doc["query"], doc.get("choices"), doc.get("gold_index")], ensure_ascii=False),
            texts=response.get("text") or [],
            thought=str((response.get("reasonings") or [None])[0] or ""),
            answer=processed[0] if processed else None,
            logprobs=response.get("logprobs") or [],
            metrics=_numbers(row["metric"]),
            state=_references(doc.get("choices") or [], doc.get("gold_index")),
            usage=_usage(response.get("input_tokens"), response.get("output_tokens")),
            n_new_tokens=doc.get("generation_size"),
        )

    @classmethod
    def from_flat(cls, row: Mapping[str, Any]) -> "_Sample":
        """A row of the layout before; its lists are texts in some versions."""
        values = {name: _parsed(value) for name, value in row.items()}
        predictions, choices = values.get("predictions") or [], values.get("choices") or []
        predictions = predictions if isinstance(predictions, list) else [predictions]
        texts = [text for text in predictions if isinstance(text, str)]
        gold = values.get("gold") or []
        state = _references(choices, values.get("gold_index")) if choices else {"target": gold}
        return cls(
            id="",
            prompt=_prompt(row.get("full_prompt"), row.get("instruction"), row.get("example") or ""),
            question=json.dumps([row.get("example"), choices, gold, values.get("gold_index")], ensure_ascii=False),
            texts=texts,
            thought="",
            answer=None,
            logprobs=[] if texts else predictions,
            metrics=_numbers(values["metrics"]),
            state=state,
            usage=_usage(values.get("input_tokens"), values.get("cont_tokens")),
            n_new_tokens=None,
        )


def _parsed(value: object) -> Any:
    """The list or record that some versions write as text; any other value as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value


def _prompt(logged: object, instruction: object, query: str) -> list[Message]:
    """What the model was sent as it was logged; else instruction and query."""
    messages = _parsed(logged)
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        return [Message(str(message.get("role")), str(message.get("content"))) for message in messages]
    if isinstance(logged, str) and logged:
        return [Message("user", logged)]
    return [Message("user", f"{instruction or ''}{query}")]


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics of a sample by name; None for what is no number."""
    return {name: float(value) if isinstance(value, int | float) else None for name, value in metrics.items()}


def _references(choices: Sequence[str], gold: object) -> dict[str, JsonValue]:
    """The right answers and, where there are several to choose from, the options, for judging again."""
    listed = gold if isinstance(gold, list) else [gold]
    places = [place for place in listed if isinstance(place, int) and 0 <= place < len(choices)]
    right = [choices[place] for place in places]
    options = options_in_state(list(choices)) if len(choices) > len(right) else {}
    if len(places) == 1:
        return {"target": places[0] if options else right[0], **options}
    return {"target": right, **options}


def _usage(prompt: object, written: object) -> Usage:
    """Tokens of a prompt and of all that was written; None where they were not logged."""
    lists = [part for part in written if isinstance(part, list)] if isinstance(written, list) else []
    n_prompt = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], list) else None
    return Usage(n_prompt, sum(map(len, lists)) if lists else None)


def _record(sample: _Sample, item_id: str, attempt: int, metric: str) -> ScoredRollout:
    responses = list(sample.texts)
    text = responses[0] if responses else json.dumps({"logprobs": list(sample.logprobs)})
    turn = turn_of(text, sample.thought)
    answer = sample.answer if sample.answer is not None else (turn.action if responses else None)
    rollout = Rollout(
        item_id=item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=sample.prompt,
        turns=[turn],
        answer=answer,
        state={**sample.state, **({"responses": responses} if len(responses) > 1 else {})},
        usage=sample.usage,
    )
    reason = f"{metric} as logged" + (f", over {len(responses)} responses" if len(responses) > 1 else "")
    return ScoredRollout(rollout, stated_score(sample.metrics, metric, reason))


def _settings(config: Mapping[str, Any], samples: Sequence[_Sample]) -> dict[str, JsonValue]:
    """Generation settings of the model's config; the length is that of the task where all samples state one."""
    model_config = config.get("model_config")
    generation = model_config.get("generation_parameters") if isinstance(model_config, dict) else None
    settings = {name: value for name, value in (generation or {}).items() if value is not None}
    sizes = {sample.n_new_tokens for sample in samples}
    limit = settings.get("max_new_tokens") or (sizes.pop() if len(sizes) == 1 else None)
    return {**settings, **({"max_tokens": limit} if limit else {})}
