"""Reads samples that lm-eval logged (`--log_samples`): `samples_<task>_<time>.jsonl`, `results_<time>.json` beside it.

One line is one item under one filter: the chosen filter gives the score, other filters and metrics become views named
`metric@filter`. lm-eval scores only the first of several responses to an item; the others are kept as rollouts with a
missing score that says so. Does NOT know tokens or seconds: lm-eval does not log them.
"""

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent2.cards.imports.writing import ForeignLog, finite_or_none, unit_score
from agent2.errors import ConfigError, Fault, unknown_name
from agent2.files import numbered_lines
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, StopReason, Turn, Usage

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl$")
ONLY_FIRST = "lm-eval scores only the first response to an item"


def read_lm_eval(path: Path, metric: str | None = None, filter_name: str | None = None) -> ForeignLog:
    """The evaluation in a samples file. metric, filter_name: which score counts; None: the first that is logged.

    Raises ConfigError if the file is no such log or for an unknown metric or filter.
    """
    rows = _rows(path)
    named = _NAME.search(path.name)
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
        for record in _records(item_id, group, chosen, chosen_filter, f"{path}: doc {group[0]['doc_id']}")
    ]
    config = results.get("config", {})
    return ForeignLog(
        harness=f"lm-eval {results.get('lm_eval_version', 'of unknown version')}",
        task=f"{task}-v{results.get('versions', {}).get(task, 'unknown')}",
        model=str(results.get("model_name") or config.get("model") or "not stated"),
        scorer=f"{chosen}@{chosen_filter}",
        questions=[(item_id, str(group[0].get("doc_hash", ""))) for item_id, group in items.items()],
        rollouts=records,
        settings=_settings(rows[0], results, task),
        attempts=1 + max(record.rollout.attempt for record in records),
        lock={"config": config, "git_hash": results.get("git_hash"), "n_shot": results.get("n-shot", {}).get(task)},
        assumed=("tokens and seconds: 0, lm-eval does not log them",),
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    rows = []
    for number, line in numbered_lines(text):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: is not JSON ({error}); the file is cut or no lm-eval log") from error
        if not isinstance(row, dict) or "doc_id" not in row or "resps" not in row:
            raise ConfigError(f"{path}:{number}: has no `doc_id` and `resps`; give a samples file of lm-eval")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path}: is empty; give a samples file of lm-eval (--log_samples)")
    return rows


def _results(path: Path, time: str) -> dict[str, Any]:
    """The results file of the same run; empty if it is not there."""
    file = path.with_name(f"results_{time}.json")
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: is not JSON ({error}); restore it or remove it") from error
    return found if isinstance(found, dict) else {}


def _settings(row: Mapping[str, Any], results: Mapping[str, Any], task: str) -> dict[str, Any]:
    configured = results.get("configs", {}).get(task, {})
    asked = _first_request(row).get("arg_1")
    settings = {**configured.get("generation_kwargs", {}), **(asked if isinstance(asked, dict) else {})}
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


def _records(
    item_id: str, group: Sequence[Mapping[str, Any]], metric: str, filter_name: str, where: str
) -> list[ScoredRollout]:
    row = next((one for one in group if str(one.get("filter", "none")) == filter_name), group[0])
    views = {
        f"{name}@{one.get('filter', 'none')}": finite_or_none(one[name])
        for one in group
        for name in one.get("metrics", [])
        if isinstance(one.get(name), int | float) and (name, str(one.get("filter", "none"))) != (metric, filter_name)
    }
    texts = _responses(row["resps"])
    first = ScoredRollout(_rollout(item_id, 0, row, texts[0]), _score(row, metric, filter_name, views, where))
    rest = [
        ScoredRollout(_rollout(item_id, n, row, text), Score(None, ONLY_FIRST, Fault.JUDGE))
        for n, text in enumerate(texts[1:], start=1)
    ]
    return [first, *rest]


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
        turns=[Turn(text, None, StopReason.END, 0, 0)],
        answer=answer,
        state={"target": row.get("target")},
        usage=Usage(),
    )


def _prompt(asked: Any) -> list[Message]:
    """The messages of a chat, which lm-eval logs as JSON in a string in a list; another prompt as one user message."""
    asked = asked[0] if isinstance(asked, list) and len(asked) == 1 and isinstance(asked[0], str) else asked
    chat = asked
    if isinstance(asked, str) and asked.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):  # a prompt may begin with a bracket
            chat = json.loads(asked)
    if isinstance(chat, list) and chat and all(_is_message(one) for one in chat):
        return [Message(one["role"], _words(one["content"])) for one in chat]
    return [Message("user", asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False))]


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str | list)


def _words(content: str | list[Any]) -> str:
    """The text of a message; parts that are not text by their kind only."""
    if isinstance(content, str):
        return content
    parts = (part if isinstance(part, dict) else {"text": str(part)} for part in content)
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)


def _score(
    row: Mapping[str, Any], metric: str, filter_name: str, views: Mapping[str, float | None], where: str
) -> Score:
    value = row.get(metric)
    if not isinstance(value, int | float) or str(row.get("filter", "none")) != filter_name:
        return Score(None, f"the log has no {metric} under filter {filter_name}", Fault.JUDGE, views)
    if not math.isfinite(value):
        return Score(None, f"{metric} is {value}, not a number from 0 to 1", Fault.JUDGE, views)
    return Score(unit_score(float(value), metric, where), f"{metric} as logged, filter {filter_name}", None, views)
