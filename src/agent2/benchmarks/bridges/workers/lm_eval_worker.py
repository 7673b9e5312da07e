"""Items and verdicts of an lm-evaluation-harness task: `TASK.yaml` with its data in a folder, and nothing else.

Prompt, few-shot examples, stop strings, filters and metric are the task's own. Of `generate_until` the message counts
up to the first stop string; of `multiple_choice` the likelihoods of the answers do. The verdict is the first metric.
"""

import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

PAGE = 200
WORDS, CHOICES = "generate_until", "multiple_choice"
NOTHING = "[invalid]"
"""What the harness's filters give where they find nothing."""
DELIMITER = " "
"""Between prompt and answer of a choice, as agent2 joins them."""


def describe() -> dict[str, Any]:
    """The package is there, and has no names: tasks are files."""
    import lm_eval.tasks

    return {"names": [], "tasks": lm_eval.tasks.__name__}


@cache
def _task(name: str) -> Any:
    from lm_eval.tasks import TaskManager, get_task_dict

    folder = Path(sys.argv[2])
    os.chdir(folder)  # its data files are named as seen from there
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    (task,) = get_task_dict([name], manager).values()
    if task.OUTPUT_TYPE not in (WORDS, CHOICES):
        raise ValueError(f"output_type {task.OUTPUT_TYPE} is not played over a bridge; {WORDS} and {CHOICES} are")
    if task.multiple_input or (task.OUTPUT_TYPE == CHOICES and task.config.target_delimiter != DELIMITER):
        raise ValueError("several prompts for one item, or another target_delimiter than a blank, is not played here")
    task.set_fewshot_seed(1234)
    return task


@cache
def _docs(name: str) -> dict[str, list[Any]]:
    """Portion -> its items: `test` is what the harness evaluates."""
    task = _task(name)
    portions = {"test": list(task.eval_docs), "train": [], "dev": []}
    if task.has_training_docs():
        portions["train"] = list(task.training_docs())
    if task.has_validation_docs() and task.has_test_docs():
        portions["dev"] = list(task.validation_docs())
    return portions


def open_set(name: str) -> dict[str, Any]:
    """How it is played, and how many items it has."""
    task = _task(name)
    return {
        "compares": task.OUTPUT_TYPE == CHOICES,
        "max_tokens": int((task.config.generation_kwargs or {}).get("max_gen_toks", 256)),
        "portions": {portion: len(docs) for portion, docs in _docs(name).items()},
    }


@cache
def _prompt(name: str, portion: str, number: int) -> str:
    task = _task(name)
    return str(task.fewshot_context(_docs(name)[portion][number], task.config.num_fewshot or 0))


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """A page of items; the reference of a choice is its letter."""
    task = _task(name)
    page = []
    for number, doc in enumerate(_docs(name)[portion][start : start + PAGE], start):
        target = task.doc_to_target(doc)
        record: dict[str, Any] = {"prompt": _prompt(name, portion, number), "reference": None}
        if task.OUTPUT_TYPE == CHOICES:
            record["options"] = [str(choice) for choice in task.doc_to_choice(doc)]
            if isinstance(target, str):
                target = record["options"].index(target)
            record["reference"] = chr(ord("A") + target) if isinstance(target, int) else None
        elif target is not None:
            record["reference"] = str(target[0] if isinstance(target, list) else target)
        page.append(record)
    return page


def score(
    name: str, portion: str, number: int, prompt_sha256: str, message: str, likelihoods: Any = None
) -> dict[str, Any]:
    """The first metric on one message; raises if it is no number from 0 to 1."""
    task, doc, prompt = _task(name), _docs(name)[portion][number], _prompt(name, portion, number)
    if hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest() != prompt_sha256:
        raise RuntimeError(f"{name} gives another item at this place in this process")
    if task.OUTPUT_TYPE == CHOICES:
        n_options = len(task.doc_to_choice(doc))
        pairs = _pairs(message, likelihoods, n_options)
        extracted = message.strip() if pairs else None
        metrics = task.process_results(doc, pairs) if pairs else {}
    else:
        for stop in task.config.generation_kwargs.get("until") or ():
            message = message.split(stop)[0] if stop else message
        instance = task.construct_requests(doc, prompt, metadata=(name, number, 1))
        instance.resps.append(message)
        task._instances = [instance]
        task.apply_filters()
        extracted = next(iter(instance.filtered_resps.values()))
        metrics = task.process_results(doc, [extracted])
        extracted = None if extracted == NOTHING else str(extracted)
    metric = next(iter(task._metric_fn_list))
    return {"value": float(metrics[metric]) if metrics else 0.0, "extracted": extracted}


def _pairs(message: str, likelihoods: Any, n_options: int) -> list[tuple[float, bool]]:
    """Log-probability of each option and whether greedy decoding gives it; of a letter, as if it were certain."""
    if likelihoods is not None:
        return list(zip(likelihoods["logprobs"], likelihoods["is_greedy"], strict=True))
    letter = message.strip()
    if len(letter) != 1 or not 0 <= ord(letter) - ord("A") < n_options:
        return []
    chosen = ord(letter) - ord("A")
    return [(-100.0 * (index != chosen), index == chosen) for index in range(n_options)]


METHODS = {"describe": describe, "open_set": open_set, "items": items, "score": score}
