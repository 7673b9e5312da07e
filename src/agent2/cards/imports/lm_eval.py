"""Samples of lm-eval (`--log_samples`): `samples_<task>_<time>.jsonl`, with `results_<time>.json` beside it.

One line is one item under one filter: the chosen filter gives the score, other filters and metrics become views named
`metric@filter`. A value that is a list (one verdict for each instruction) counts as its mean. Several lines of an item
under one filter are its attempts. lm-eval scores only the first of several responses to an item; later ones are kept as
rollouts with a missing score that says so. Tokens and seconds are not known: lm-eval does not log them.

Where the results file counts more items than are logged (`n-samples`), the others are missing: the run stopped, or the
file was cut. Before 0.4.13 that count did not know of items that the user chose (`--samples`), so it is believed only
where the logged items are the first ones.
"""

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from agent2.cards.imports.foreign_log import (
    UNMETERED,
    ForeignLog,
    finite_or_none,
    logged_score,
    lost_rollout,
    options_in_state,
)
from agent2.cards.imports.messages import turn_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of
from agent2.errors import ConfigError, Fault, unknown_name
from agent2.llm.thoughts import split_thought
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout
from agent2.texts import parse_json

_SAMPLES_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl$")
COUNTS_PLAYED = (0, 4, 13)
"""From this version on, `n-samples` counts what was played."""
ONLY_FIRST = "lm-eval scores only the first response to an item"


def recognises(source: LogSource) -> bool:
    """Whether the first line of a source has a document and responses."""
    row = source.head
    return isinstance(row, dict) and "doc_id" in row and "resps" in row


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The evaluation in a samples file, under the metric and the filter chosen, else the first that is logged.

    Raises ConfigError if the file is no such log or for an unknown metric or filter.
    """
    path, metric, filter_name = source.path, choice.metric, choice.filter_name
    rows = _rows(source)
    named = _SAMPLES_NAME.search(path.name)
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    metrics = list(dict.fromkeys(name for row in rows for name in row.get("metrics", [])))
    if not metrics:
        raise ConfigError(f"{path}: no line names its `metrics`; give a samples file of lm-eval 0.4 or later")
    chosen, chosen_filter = metric or metrics[0], filter_name or filters[0]
    if chosen not in metrics:
        raise unknown_name("metric", chosen, metrics, f"{path}: --metric")
    if chosen_filter not in filters:
        raise unknown_name("filter", chosen_filter, filters, f"{path}: --filter")
    task = named["task"] if named else path.stem
    results = _results(path, named["time"] if named else "")
    items: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        items.setdefault(f"{task}-{row['doc_id']}", []).append(row)
    records = [
        record
        for item_id, group in items.items()
        for record in _records_of_item(item_id, group, chosen, chosen_filter, path)
    ]
    unlogged = _unlogged(task, items, results, path)
    config = results.get("config", {})
    return ForeignLog(
        harness=f"lm-eval {results.get('lm_eval_version', 'of unknown version')}",
        task=f"{task}-v{results.get('versions', {}).get(task, 'unknown')}",
        model=str(results.get("model_name") or config.get("model") or "not stated"),
        scorer=f"{chosen}@{chosen_filter}",
        questions=[(item_id, str(group[0].get("doc_hash", ""))) for item_id, group in items.items()]
        + [(record.rollout.item_id, "") for record in unlogged],
        rollouts=[*records, *unlogged],
        settings=_settings(rows[0], results, task),
        attempts=1 + max(record.rollout.attempt for record in records),
        lock={"config": config, "git_hash": results.get("git_hash"), "n_shot": results.get("n-shot", {}).get(task)},
        assumed=[
            "seconds: 0, lm-eval does not log them",
            *([f"{unlogged[0].score.reason}; the others are missing"] if unlogged else []),
        ],
    )


def _version(results: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", str(results.get("lm_eval_version", "")))[:3]))


def _unlogged(task: str, items: Mapping[str, Any], results: Mapping[str, Any], path: Path) -> list[ScoredRollout]:
    """Items that the run counts and the samples file does not have.

    Raises ConfigError for a samples file with more items than the run counts, which is of another run.
    """
    counted = results.get("n-samples", {}).get(task)
    n_played = counted.get("effective") if isinstance(counted, dict) else None
    if not isinstance(n_played, int) or n_played == len(items):
        return []
    if n_played < len(items):
        raise ConfigError(
            f"{path}: has {len(items)} items, and the results file beside it counts {n_played}; give both files of the "
            "same run"
        )
    reason = f"the samples file has {len(items)} of the {n_played} items that the results file counts"
    numbered = [item_id for item_id in (f"{task}-{number}" for number in range(n_played)) if item_id not in items]
    n_lost = n_played - len(items)
    are_first = items.keys() == {f"{task}-{number}" for number in range(len(items))}
    if not are_first and _version(results) < COUNTS_PLAYED:
        return []
    # Of chosen items the numbers are not those from 0 on.
    ids = numbered if len(numbered) == n_lost else [f"{task}-unlogged-{number}" for number in range(n_lost)]
    return [lost_rollout(item_id, 0, reason) for item_id in ids]


def _rows(source: LogSource) -> list[dict[str, Any]]:
    rows = []
    for number, row in source.rows:
        if not isinstance(row, dict) or "doc_id" not in row or "resps" not in row:
            raise ConfigError(f"{source.path}:{number}: is no line of lm-eval (it has no `doc_id` and `resps`)")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{source.path}: is empty; give a samples file of lm-eval (--log_samples)")
    return rows


def _results(path: Path, time: str) -> dict[str, Any]:
    """The results file of the same run; empty if it is not there."""
    file = path.with_name(f"results_{time}.json")
    if not file.is_file():
        return {}
    try:
        results = document_of(file)
    except ConfigError as error:
        raise ConfigError(f"{error}; restore the file or remove it") from error
    return results if isinstance(results, dict) else {}


def _settings(row: Mapping[str, Any], results: Mapping[str, Any], task: str) -> dict[str, Any]:
    configured = results.get("configs", {}).get(task, {})
    requested = _first_request(row).get("arg_1")
    settings = {**configured.get("generation_kwargs", {}), **(requested if isinstance(requested, dict) else {})}
    if "max_gen_toks" in settings:
        settings["max_tokens"] = settings["max_gen_toks"]
    if settings.get("do_sample") is False:
        settings["temperature"] = 0.0
    return {**settings, "num_fewshot": configured.get("num_fewshot")}


def _first_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the first request that was made for an item; empty if they were not logged."""
    arguments = row.get("arguments")
    first = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
    return first if isinstance(first, dict) else {}


def _records_of_item(
    item_id: str, group: Sequence[Mapping[str, Any]], metric: str, filter_name: str, path: Path
) -> list[ScoredRollout]:
    """The rollouts of one item. An item with several lines under one filter was asked several times: its attempts.

    Raises ConfigError for an item whose filters have different numbers of lines.
    """
    by_filter: dict[str, list[Mapping[str, Any]]] = {}
    for line in group:
        by_filter.setdefault(str(line.get("filter", "none")), []).append(line)
    counts = {name: len(lines) for name, lines in by_filter.items()}
    if len(set(counts.values())) > 1:
        stated = ", ".join(f"{count} under {name}" for name, count in counts.items())
        raise ConfigError(f"{path}: doc_id {group[0]['doc_id']} has lines {stated}; remove those that are double")
    records: list[ScoredRollout] = []
    for lines_of_attempt in zip(*by_filter.values(), strict=True):
        for record in _records(item_id, lines_of_attempt, metric, filter_name):
            rollout = structs.replace(record.rollout, attempt=len(records))
            records.append(ScoredRollout(rollout, record.score))
    return records


def _records(item_id: str, group: Sequence[Mapping[str, Any]], metric: str, filter_name: str) -> list[ScoredRollout]:
    row = next((line for line in group if str(line.get("filter", "none")) == filter_name), group[0])
    views = {
        f"{name}@{line.get('filter', 'none')}": None
        if (value := _mean_of(line.get(name))) is None
        else finite_or_none(value)
        for line in group
        for name in line.get("metrics", [])
        if _mean_of(line.get(name)) is not None and (name, str(line.get("filter", "none"))) != (metric, filter_name)
    }
    texts = _responses(row["resps"])
    first = ScoredRollout(_rollout(item_id, 0, row, texts[0]), _lm_eval_score(row, metric, filter_name, views))
    unscored = [
        ScoredRollout(_rollout(item_id, n, row, text), Score(None, ONLY_FIRST, Fault.JUDGE))
        for n, text in enumerate(texts[1:], start=1)
    ]
    return [first, *unscored]


def _responses(resps: Any) -> list[str]:
    """Texts of the responses: several to one request, or one text for the likelihoods of several choices."""
    if isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list):
        texts = [response for response in resps[0] if isinstance(response, str)]
        if texts and len(texts) == len(resps[0]):
            return texts
    return [json.dumps(resps)]


def _rollout(item_id: str, attempt: int, row: Mapping[str, Any], text: str) -> Rollout:
    filtered = row.get("filtered_resps") or [None]
    answer = filtered[0] if isinstance(filtered, list) and attempt == 0 and isinstance(filtered[0], str) else None
    return Rollout(
        item_id=item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=_prompt(_first_request(row).get("arg_0", "")),
        turns=[turn_of(text)],
        answer=None if answer is None else split_thought(answer)[1],
        state={"target": row.get("target"), **options_in_state(_choices_of(row.get("doc")))},
        usage=UNMETERED,
    )


def _choices_of(document: object) -> object:
    """The options of an lm-eval document, by the names that tasks usually have for them."""
    if not isinstance(document, dict):
        return None
    choices = document.get("choices", document.get("options"))
    return choices.get("text") if isinstance(choices, dict) else choices


def _prompt(logged: Any) -> list[Message]:
    """The messages of a chat, which lm-eval logs as JSON in a string in a list; another prompt as one user message."""
    logged = logged[0] if isinstance(logged, list) and len(logged) == 1 and isinstance(logged[0], str) else logged
    chat = logged
    if isinstance(logged, str) and logged.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):  # a prompt may begin with a bracket
            chat = parse_json(logged)
    if isinstance(chat, list) and chat and all(_is_message(message) for message in chat):
        return [Message(message["role"], _content_text(message["content"])) for message in chat]
    return [Message("user", logged if isinstance(logged, str) else json.dumps(logged, ensure_ascii=False))]


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str | list)
    )


def _content_text(content: str | list[Any]) -> str:
    """The text of a message; parts that are not text by their type only."""
    if isinstance(content, str):
        return content
    parts = (part if isinstance(part, dict) else {"text": str(part)} for part in content)
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _mean_of(value: object) -> float | None:
    """A logged value; of a list, as IFEval logs one verdict for each instruction, the mean; None: neither."""
    if isinstance(value, list):
        parts = [float(part) for part in value if isinstance(part, int | float)]
        return sum(parts) / len(parts) if parts and len(parts) == len(value) else None
    return float(value) if isinstance(value, int | float) else None


def _lm_eval_score(row: Mapping[str, Any], metric: str, filter_name: str, views: Mapping[str, float | None]) -> Score:
    value = _mean_of(row.get(metric))
    if value is None or str(row.get("filter", "none")) != filter_name:
        return Score(None, f"the log has no {metric} under filter {filter_name}", Fault.JUDGE, views)
    if not math.isfinite(value):
        return Score(None, f"{metric} is {value}, not a number from 0 to 1", Fault.JUDGE, views)
    return logged_score(float(value), metric, f"{metric} as logged, filter {filter_name}", views)
