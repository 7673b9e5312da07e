"""Broken training pipelines: eight causes, each in variants drawn from a secret seed.

The healthy pipeline is in `debug_pipeline/`. A variant renames what it defines, draws its constants and its layout (one
file or several), and replaces a few lines by broken ones. The draw depends on the installation's secret, so
neither the name of a task nor its seed tells the cause.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from agent2.errors import ConfigError

ENTRY = "train.py"
BUDGET = "budget.json"
"""Steps and batch size: the same for everybody, restored before the grader's run."""
CONFIG = "config.json"
MODULES = ("rewards", "sampling", "advantages", "loss", "train")
STEPS = 40
IMPORT = re.compile(r"^(?:import|from) .*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PipelineFault:
    """One way to break the healthy pipeline."""

    symptom: str
    """What its log or its scores show; part of what the agent is told."""
    edits: Mapping[str, Sequence[tuple[str, str]]]
    """Module -> (healthy text, broken text)."""
    settings: Mapping[str, tuple[float, ...]] | None = None
    """Entries of the configuration that it changes or adds, each drawn from these."""


FLAT = "The log looks calm, but accuracy on fresh questions is where it was before training."
FALLS = "Accuracy on fresh questions is lower after training than before."

FAULTS: Mapping[str, Sequence[PipelineFault]] = {
    "loss-mask": (
        PipelineFault(
            FLAT,
            {"loss": [("return completion_mask * is_learned", "return (1 - completion_mask) * is_learned")]},
        ),
        PipelineFault(FLAT, {"loss": [("* is_learned.long()[:, None]", "* (1 - is_learned.long())[:, None]")]}),
    ),
    "advantages": (
        PipelineFault(
            FALLS,
            {
                "advantages": [
                    ("grouped - grouped.mean(1, keepdim=True)", "grouped.mean(1, keepdim=True) - grouped"),
                ]
            },
        ),
        PipelineFault(
            FALLS,
            {"advantages": [("return (centred / (grouped", "return -(centred / (grouped")]},
        ),
    ),
    "stale-logprobs": (
        PipelineFault(
            FLAT + " A large share of the ratios is clipped.",
            {
                "train": [
                    ("    for step in range(", "    kept = None\n    for step in range("),
                    (
                        "            old = token_logprobs(policy, tokenizer, prompts, completion)\n",
                        "            fresh = token_logprobs(policy, tokenizer, prompts, completion)\n"
                        "        old, kept = fresh if kept is None else kept, fresh\n",
                    ),
                ]
            },
        ),
    ),
    "reward": (
        PipelineFault(
            FALLS + " The logged reward rises from step to step.",
            {"rewards": [("    return verdict\n", '    return verdict + settings["thoroughness"] * n_tokens\n')]},
            {"thoroughness": (0.2, 0.3, 0.4)},
        ),
    ),
    "kl": (PipelineFault(FLAT, {}, {"kl_coefficient": (40.0, 60.0, 90.0)}),),
    "template": (
        PipelineFault(
            FLAT + " The logged reward is far below the accuracy of the base model.",
            {
                "sampling": [
                    (
                        "    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)\n",
                        '    text = chat[0]["content"] + "\\n"\n',
                    )
                ]
            },
        ),
    ),
    "truncation": (
        PipelineFault(
            FALLS + " Completions get shorter.",
            {
                "advantages": [
                    (
                        "    is_learned = is_complete\n",
                        '    is_cut_off = n_tokens > settings["answer_budget"]\n'
                        '    rewards = rewards.masked_fill(is_cut_off, settings["cut_off_reward"])\n'
                        "    is_learned = is_complete | is_cut_off\n",
                    )
                ]
            },
            {"answer_budget": (2,), "cut_off_reward": (-1.0, -0.5)},
        ),
    ),
    "learning-rate": (
        PipelineFault(
            FALLS + " It was fine for the first few steps.",
            {
                "train": [
                    (
                        'min(1.0, (step + 1) / settings["warmup_steps"])',
                        'max(1.0, (step + 1) * settings["warmup_steps"])',
                    )
                ]
            },
        ),
    ),
}
"""Cause -> its faults; the causes are the closed list that a diagnosis names one of."""

RENAMED: Mapping[str, Sequence[str]] = {
    "draw_group": ("sample_groups", "roll_out", "generate_batch"),
    "render_prompt": ("encode_prompt", "prompt_tokens", "to_prompt_ids"),
    "judge_truncated": ("filter_unfinished", "screen", "select_completions"),
    "group_advantage": ("compare_in_group", "relative_rewards", "compute_advantages"),
    "token_logprobs": ("score_tokens", "sequence_logprobs", "per_token_logps"),
    "loss_mask": ("tokens_to_train", "select_tokens", "training_mask"),
    "policy_loss": ("clipped_loss", "surrogate", "objective"),
    "total_reward": ("combine_reward", "final_reward", "reward_of"),
    "completion_mask": ("answer_mask", "is_answer", "real_tokens"),
    "is_learned": ("is_kept", "is_used", "counts"),
    "is_complete": ("has_ended", "is_finished", "ended"),
    "grouped": ("by_group", "table", "in_groups"),
    "centred": ("difference", "deviation", "gap_to_mean"),
    "policy": ("actor", "student", "policy"),
    "verdict": ("correctness", "verdict", "is_right"),
}
"""Name in the healthy pipeline -> what a variant may call it."""
RENAMED_MODULES: Mapping[str, Sequence[str]] = {
    "rewards": ("rewards", "verifier", "reward_model"),
    "sampling": ("sampling", "rollouts", "generation"),
    "advantages": ("advantages", "groups", "baselines"),
    "loss": ("loss", "objective_terms", "update"),
}
CONSTANTS: Mapping[str, Sequence[float]] = {
    "learning_rate": (4e-4, 5e-4, 6e-4),
    "warmup_steps": (3, 4, 5),
    "kl_coefficient": (0.0, 0.01, 0.02),
    "clip_range": (0.15, 0.2, 0.25),
}
SHORT_OF = 12
"""Tokens of the longest completion for which `answer_budget` above is written; scaled to those of the benchmark."""
BATCHES = ((24, 8), (32, 6), (16, 12))
"""Prompts of a step and completions of each, alike in cost."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One broken pipeline and the healthy one beside it."""

    cause: str
    symptom: str
    broken: Mapping[str, bytes]
    """Name -> content, as the agent gets it."""
    healthy: Mapping[str, bytes]


def draw_variant(secret: bytes, seed: int, benchmark: str, max_tokens: int, case: str = "") -> Variant:
    """The variant of a seed. case: the cause; empty: drawn too.

    Raises ConfigError for a cause that does not exist.
    """
    if case and case not in FAULTS:
        raise ConfigError(f"assignment.case is {case!r}; choose one of {', '.join(FAULTS)}, or leave it empty")

    def generator(of_what: str) -> np.random.Generator:
        digest = hmac.digest(secret, f"debug-training {benchmark} {seed}{of_what}".encode(), hashlib.sha256)
        return np.random.default_rng(int.from_bytes(digest[:16], "big"))

    # The fault has a generator of its own: whatever it draws, the healthy pipeline of a seed is one and the same, which
    # neither tells the cause nor has to be run once for each.
    rng, fault_rng = generator(""), generator(" fault")

    def pick(n: int) -> int:
        return int(rng.integers(n))

    cause = case or list(FAULTS)[int(fault_rng.integers(len(FAULTS)))]
    fault = FAULTS[cause][int(fault_rng.integers(len(FAULTS[cause])))]
    wrong = {name: values[int(fault_rng.integers(len(values)))] for name, values in (fault.settings or {}).items()}
    if "answer_budget" in wrong:
        wrong["answer_budget"] = wrong["answer_budget"] * max_tokens // SHORT_OF
    prompts_per_step, group_size = BATCHES[pick(len(BATCHES))]
    budget = {"steps": STEPS, "prompts_per_step": prompts_per_step, "group_size": group_size}
    settings: dict[str, float | str] = {
        "benchmark": benchmark,
        "max_new_tokens": max_tokens,
        "temperature": 1.0,
        "updates_per_batch": 2,
        "largest_gradient": 1.0,
        **{name: values[pick(len(values))] for name, values in CONSTANTS.items()},
    }
    names = {name: choices[pick(len(choices))] for name, choices in RENAMED.items()}
    modules = {name: choices[pick(len(choices))] for name, choices in RENAMED_MODULES.items()}
    is_single = bool(rng.integers(2))
    source = _healthy_source()
    broken = {module: _edited(text, fault.edits.get(module, ()), module) for module, text in source.items()}

    def files(texts: Mapping[str, str], config: Mapping[str, float | str]) -> dict[str, bytes]:
        return {
            **_laid_out(texts, names, modules, is_single=is_single),
            CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
            BUDGET: (json.dumps(budget, indent=2) + "\n").encode(),
        }

    return Variant(cause, fault.symptom, files(broken, {**settings, **wrong}), files(source, settings))


def _healthy_source() -> dict[str, str]:
    folder = resources.files("agent2.arena.assignments") / "debug_pipeline"
    return {name: (folder / f"{name}.py.txt").read_text(encoding="utf-8") for name in MODULES}


def _edited(text: str, edits: Sequence[tuple[str, str]], module: str) -> str:
    for healthy, broken in edits:
        if text.count(healthy) != 1:
            raise ConfigError(
                f"debug_pipeline/{module}.py.txt: {healthy!r} is there {text.count(healthy)} times, not once"
            )
        text = text.replace(healthy, broken)
    return text


def _laid_out(
    texts: Mapping[str, str], names: Mapping[str, str], modules: Mapping[str, str], *, is_single: bool
) -> dict[str, bytes]:
    """The files of one layout: a module each, or all of them in the entry."""
    renamed = {module: _renamed(text, names) for module, text in texts.items()}
    own_import = re.compile(rf"^from ({'|'.join(RENAMED_MODULES)}) import (.*)\n", re.MULTILINE)
    if not is_single:
        return {
            f"{modules.get(module, module)}.py": own_import.sub(
                lambda match: f"from {modules[match[1]]} import {match[2]}\n", text
            ).encode()
            for module, text in renamed.items()
        }
    bodies = [own_import.sub("", text) for text in renamed.values()]
    docstring = re.compile(r'\A""".*?"""\n', re.DOTALL)
    headline = docstring.match(bodies[-1])
    code = [docstring.sub("", body) for body in bodies]
    imports = sorted({line for body in code for line in body.splitlines() if IMPORT.match(line)})
    defined = [IMPORT.sub("", body).strip("\n") for body in code]
    text = "\n\n\n".join(["\n".join(imports), *defined])
    return {ENTRY: f"{headline[0] if headline else ''}\n{text}\n".encode()}


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name, choice in names.items():
        text = re.sub(rf"(?<![\"'\w]){name}(?![\"'\w])", choice, text)
    return text
