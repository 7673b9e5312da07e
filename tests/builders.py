"""Small pieces of evidence for tests and examples: everything has a sensible default, name what matters."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent2.arena.evidence import (
    AgentEnd,
    MetricPoint,
    NoiseBand,
    ProcessSample,
    Revision,
    SubmissionRecord,
    SubmissionState,
    TrialEvidence,
)
from agent2.arena.spec import TaskSpec
from agent2.arena.tasks import load_task
from agent2.errors import Fault
from agent2.stats.estimates import Estimate, PairedDifference

START = 1_000_000.0
"""Unix time at which every built trial starts; all `at` below are seconds after it."""

BASE_DIGEST = "b" * 64

DESIGN = {
    "algorithm": "GRPO with a verifier reward",
    "hyperparameters": {"learning_rate": 5e-4, "group_size": 8, "steps": 100},
    "data_preprocessing": "train split as it is, shuffled",
    "evaluation_protocol": "greedy accuracy on the dev split after training",
}

GRPO_SOURCE = """\
from trl import GRPOConfig, GRPOTrainer

def evaluate(path):
    return open(f"{path}/dev.jsonl").read()

trainer = GRPOTrainer(model="/model", args=GRPOConfig(output_dir="output/grpo"))
trainer.train()
evaluate("/workspace/data")
"""

SFT_SOURCE = """\
from trl import SFTTrainer

trainer = SFTTrainer(model="/model", train_dataset=rows)
trainer.train()
trainer.save_model("output/sft")
"""


def make_task(**changes: Any) -> TaskSpec:
    """The packaged arithmetic task."""
    return load_task("arithmetic").model_copy(update=changes)


def make_score(value: float, n_items: int = 600, n_missing: int = 0) -> Estimate:
    """A score with a rough 95% interval."""
    half = 1.96 * math.sqrt(max(value * (1 - value), 1e-6) / n_items)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), n_items, n_missing, "by hand")


def make_gain(delta: float, half_width: float = 0.04, p_value: float = 0.001, n_items: int = 600) -> PairedDifference:
    """A paired gain with a symmetric interval."""
    return PairedDifference(Estimate(delta, delta - half_width, delta + half_width, n_items), p_value)


def make_submission(number: int, at: float = 100.0, score: float | None = 0.6, **changes: Any) -> SubmissionRecord:
    """A scored submission; without a score it is one whose evaluation failed."""
    record = SubmissionRecord(
        number=number,
        received_at=START + at,
        model_path=f"output/model-{number}",
        note="",
        state=SubmissionState.SCORED if score is not None else SubmissionState.FAILED,
        weights_digest=f"{number:064d}",
        is_base_copy=False,
        revision=None,
        score=make_score(score, 400) if score is not None else None,
        fault=None if score is not None else Fault.SUBMITTER,
        reason="" if score is not None else "logits are not finite at item 3; submit finite weights",
        finished_at=START + at + 10,
    )
    return replace(record, **changes)


def make_rejected(number: int, reason: str, at: float = 100.0, **changes: Any) -> SubmissionRecord:
    """A submission refused at the door."""
    rejected = {"state": SubmissionState.REJECTED, "reason": reason, "weights_digest": None, "finished_at": None}
    return make_submission(number, at, None, **{**rejected, **changes})


def make_revision(files: Mapping[str, str], at: float = 5.0, submission: int | None = None) -> Revision:
    """A code revision; its id tells when it was taken."""
    return Revision(START + at, f"{round(at * 1000):040x}", submission, dict(files))


def make_process(command: str, at: float = 6.0, until: float = 90.0, pid: int = 7, **changes: Any) -> ProcessSample:
    """A process by its command line, split at blanks."""
    sample = ProcessSample(pid, tuple(command.split()), START + at, START + until, until - at, 800 * 2**20)
    return replace(sample, **changes)


def make_metrics(
    file: str, values: Sequence[Mapping[str, float]], at: float = 10.0, period: float = 5.0
) -> list[MetricPoint]:
    """A training log, one line every `period` seconds."""
    return [MetricPoint(START + at + place * period, file, place * 10, dict(row)) for place, row in enumerate(values)]


def make_evidence(**changes: Any) -> TrialEvidence:
    """A GRPO trial that went well: base 30%, one submission at 60% public and 58% private.

    Any field of TrialEvidence can be given; `submissions=[]` and the like also take away what hangs on them.
    """
    submissions = changes.setdefault("submissions", [make_submission(1, at=100.0, score=0.6)])
    scored = [s for s in submissions if s.score is not None and s.score.value > 0.3]
    final = changes.setdefault("final_submission", scored[0].number if scored else None)
    reward = [{"loss": 0.1, "reward": r, "kl": 0.01} for r in (0.2, 0.3, 0.45, 0.55, 0.6)]
    fields: dict[str, Any] = {
        "trial_id": "arithmetic-grpo-0",
        "task": make_task(),
        "agent": "grpo",
        "driver": None,
        "seed": 0,
        "sandbox": "bubblewrap",
        "containment": [{"what": "network", "strength": "hard", "how": "own network namespace"}],
        "started_at": START,
        "ended_at": START + 150,
        "deadline": START + 600,
        "agent_end": AgentEnd.EXITED,
        "agent_exit_code": 0,
        "agent_log_tail": "training\ndone\n",
        "base_weights_digest": BASE_DIGEST,
        "base_public": make_score(0.3, 400),
        "base_private": make_score(0.3),
        "final_private": make_score(0.58) if final is not None else None,
        "gain": make_gain(0.28) if final is not None else None,
        "noise": NoiseBand(0.03, 4),
        "revisions": [make_revision({"code/train.py": GRPO_SOURCE})],
        "processes": [make_process("python code/train.py")],
        "metrics": [
            *make_metrics("output/grpo/log.jsonl", reward),
            *make_metrics("output/eval_log.jsonl", [{"eval_dev": 0.32}, {"eval_dev": 0.61}], at=12, period=10),
        ],
        "design": dict(DESIGN),
        "lock": {"agent2": "0.1.0", "base_model": {"weights_digest": BASE_DIGEST}},
    }
    return TrialEvidence(**{**fields, **changes})
