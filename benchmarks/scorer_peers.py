"""What lm-eval's and inspect-ai's own scorers say of each answer; run by `scorers.py` with a Python that has them.

    python scorer_peers.py < cases.json > verdicts.json

Their code and their task files decide, nothing is reimplemented: the regular expressions come from lm-eval's YAML, the
instruction checks from its IFEval task, and from `instruction_following_eval`, which inspect-evals uses, if that can
be imported. A verdict is 0 or 1; null: differs between five askings; "error: ..." where the scorer breaks.
"""

import asyncio
import importlib.metadata
import importlib.util
import json
import logging
import sys
from pathlib import Path

import yaml

logging.disable(logging.CRITICAL)
ASKINGS = 5


def task_file(name):
    """A task's YAML as lm-eval ships it; tags that call functions are read as text."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: str(node.value))
    folder = Path(str(importlib.util.find_spec("lm_eval").origin)).parent / "tasks"
    return yaml.load((folder / name).read_text(), Loader)


def lm_eval_match(task):
    """For each filter of a task a function (answer, reference) -> verdict."""
    from lm_eval.api.metrics import exact_match_fn
    from lm_eval.filters.extraction import RegexFilter

    metric = {key: value for key, value in task["metric_list"][0].items() if key.startswith(("ignore", "regexes"))}

    def judge(settings):
        regex = RegexFilter(**{key: value for key, value in settings.items() if key != "function"})

        def verdict(answer, reference):
            ((filtered,),) = regex.apply([[answer]], [{}])
            return int(exact_match_fn(predictions=[filtered], references=[reference], **metric)["exact_match"])

        return verdict

    return {entry["name"]: judge(entry["filter"][0]) for entry in task["filter_list"]}


def inspect_number(answer, reference):
    """inspect-evals' gsm8k scorer: `match(numeric=True)`."""
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import CORRECT, Target, match
    from inspect_ai.solver import TaskState

    output = ModelOutput.from_content("mockllm/model", answer)
    state = TaskState("mockllm/model", 1, 1, "", [], output=output)
    return int(asyncio.run(match(numeric=True)(state, Target(reference))).value == CORRECT)


def inspect_choice(answer, reference):
    """inspect-evals' mmlu_pro: the letter that `multiple_choice` parses."""
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import TaskState
    from inspect_ai.solver._multiple_choice import parse_answers

    output = ModelOutput.from_content("mockllm/model", answer)
    state = TaskState("mockllm/model", 1, 1, "", [], choices=["1", "2", "3", "4"], output=output)
    return int(parse_answers(state, False) == {reference})


def lm_eval_instruction(case, strict):
    """One instruction by lm-eval's IFEval task."""
    from lm_eval.tasks.ifeval import utils

    row = utils.InputExample(1, [case["name"]], "", [case["arguments"]])
    check = utils.test_instruction_following_strict if strict else utils.test_instruction_following_loose
    return int(check(row, case["answer"]).follow_all_instructions)


def josejg_instruction(case, strict):
    """One instruction by the package that inspect-evals asks for; its bridge drops what is falsy first."""
    from instruction_following_eval import evaluation

    kwargs = {key: value for key, value in case["arguments"].items() if value}
    row = evaluation.InputExample(1, [case["name"]], "", [kwargs])
    return int(evaluation.test_instruction_following(row, case["answer"], strict=strict).follow_all_instructions)


def steady(ask):
    """The verdict if it is the same each time."""
    try:
        verdicts = {ask() for _ in range(ASKINGS)}
    except Exception as error:  # the boundary to somebody else's scorer: what it raises is the finding
        return f"error: {type(error).__name__}"
    return verdicts.pop() if len(verdicts) == 1 else None


def verdicts(cases):
    """Peer -> verdict for every case."""
    gsm8k, mmlu_pro = task_file("gsm8k/gsm8k.yaml"), task_file("mmlu_pro/_default_template_yaml")
    number, choice = lm_eval_match(gsm8k), lm_eval_match(mmlu_pro)["custom-extract"]
    has_other = importlib.util.find_spec("instruction_following_eval") is not None
    for case in cases:
        answer, reference = case["answer"], case["reference"]
        if case["kind"] == "number":
            gold = f"Working.\n#### {reference}"
            calls = {
                "lm_eval strict": lambda a=answer, g=gold: number["strict-match"](a, g),
                "lm_eval flexible": lambda a=answer, g=gold: number["flexible-extract"](a, g),
                "inspect": lambda a=answer, r=reference: inspect_number(a, r),
            }
        elif case["kind"] == "choice":
            calls = {
                "lm_eval": lambda a=answer, r=reference: choice(a, r),
                "inspect": lambda a=answer, r=reference: inspect_choice(a, r),
            }
        else:
            calls = {
                f"lm_eval {'strict' if s else 'loose'}": lambda c=case, s=s: lm_eval_instruction(c, s) for s in (1, 0)
            }
            if has_other:
                calls |= {
                    f"inspect {'strict' if s else 'loose'}": lambda c=case, s=s: josejg_instruction(c, s)
                    for s in (1, 0)
                }
        yield {peer: steady(ask) for peer, ask in calls.items()}


if __name__ == "__main__":
    spec = list(verdicts(json.load(sys.stdin)))
    versions = {name: importlib.metadata.version(name) for name in ("lm_eval", "inspect_ai", "langdetect", "nltk")}
    json.dump({"versions": versions, "verdicts": spec}, sys.stdout)
