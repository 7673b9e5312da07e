"""Our own CPU time per single-turn sample, beside inspect-ai's on the same questions.

    python benchmarks/overhead.py [--inspect-python PATH] [--out overhead.json]

An instant sampler takes the model out of the picture; what is left is the harness: engine, environment,
scorer and a durable card (every record handed to the kernel, fsync each second and on close, compressed and
digested when closed). inspect-ai runs in a process of its own with its mock model, exact-match scorer and
log files, when the interpreter given has it; token counts are given to it, or it would fetch a tokenizer.
Both are warmed up first and measured in CPU time of the whole process, all threads included, around the
evaluation call alone: importing and making questions are left out.

Goals: at most 50 microseconds a sample, and at least 100 times less than inspect-ai. Exit code 1 if one of those
that were measured is missed; without inspect-ai that is the first one only, and the output says so.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent2.benchmarks.arithmetic import Arithmetic, ExpressionDifficulty
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Message, Split

GOAL_US = 50.0
GOAL_RATIO = 100.0
N_WARM_UP = 100
DIFFICULTY = ExpressionDifficulty(n_operations=3, max_operand=99, operators="+-")
ANSWER = "7/3"

INSPECT_PROGRAM = """
import json, sys, tempfile, time
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import exact
questions, answer, n_warm_up, runs = json.load(sys.stdin)

def reply(input, tools, tool_choice, config):
    output = ModelOutput.from_content("mockllm/model", answer)
    output.usage = ModelUsage(input_tokens=8, output_tokens=3, total_tokens=11)
    return output

def cpu_seconds(rows, folder):
    dataset = MemoryDataset([Sample(input=prompt, target=reference) for prompt, reference in rows])
    task = Task(dataset=dataset, scorer=exact())
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    begun = time.process_time()
    (log,) = eval(task, model=model, display="none", log_dir=folder)
    used = time.process_time() - begun
    assert log.status == "success" and log.results.completed_samples == len(rows), log.error
    return used

with tempfile.TemporaryDirectory() as folder:
    cpu_seconds(questions[:n_warm_up], folder)
    used = [cpu_seconds(questions, folder) for _ in range(runs)]
import inspect_ai
json.dump({"version": inspect_ai.__version__, "cpu_seconds": used}, open(sys.argv[1], "w"))
"""


@dataclass(frozen=True)
class Row:
    """One measured tool at one size."""

    tool: str
    n_samples: int
    runs_us: list[float]
    """CPU microseconds a sample, one number a run."""

    @property
    def median_us(self) -> float:
        """The middle run."""
        return statistics.median(self.runs_us)


def reply(messages: Sequence[Message]) -> str:
    """The instant model: one wrong answer to everything, so that the scorer reads a number each time."""
    return ANSWER


def measure_agent2(items: Sequence[Item], runs: int) -> Row:
    """Evaluate the items `runs` times, each on a fresh card."""
    benchmark = Arithmetic(DIFFICULTY)
    used = []
    with tempfile.TemporaryDirectory() as folder:
        for run in range(-1, runs):  # run -1 warms up
            run_items = items[:N_WARM_UP] if run < 0 else items
            plan = EvaluationPlan(benchmark, Split.DEV, run_items, "instant", "0" * 64, "0" * 64, "none")
            started = time.process_time()
            summary = evaluate(plan, ScriptedSampler(reply), Path(folder) / f"card{run}")
            if run >= 0:
                used.append((time.process_time() - started) / len(run_items) * 1e6)
            if summary.n_rollouts != len(run_items) or summary.n_missing:
                raise RuntimeError(f"{summary.n_rollouts} of {len(run_items)} samples, {summary.n_missing} missing")
    return Row("agent2", len(items), used)


def measure_inspect(items: Sequence[Item], runs: int, python: str) -> Row:
    """The same questions through inspect-ai under another interpreter. Raises CalledProcessError if it fails."""
    questions = [(item.prompt, item.reference) for item in items]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [python, "-c", INSPECT_PROGRAM, str(result)]
        subprocess.run(command, input=json.dumps([questions, ANSWER, N_WARM_UP, runs]), text=True, check=True)
        measured = json.loads(result.read_text())
    used = [seconds / len(items) * 1e6 for seconds in measured["cpu_seconds"]]
    return Row(f"inspect-ai {measured['version']}", len(items), used)


def has_inspect(python: str) -> bool:
    """Whether there is such an interpreter and it can import inspect-ai."""
    program = shutil.which(python)
    return (
        program is not None
        and subprocess.run([program, "-c", "import inspect_ai"], capture_output=True).returncode == 0
    )


def main() -> int:
    """Measure, print the table, say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 10000], help="numbers of samples")
    parser.add_argument("--runs", type=int, default=7, help="runs of agent2; the median counts")
    parser.add_argument("--inspect-runs", type=int, default=1, help="runs of inspect-ai (10000 samples take minutes)")
    parser.add_argument("--inspect-python", default=sys.executable, help="interpreter that has inspect-ai")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    arguments = parser.parse_args()
    rows, is_met = [], True
    with_inspect = has_inspect(arguments.inspect_python)
    for n in arguments.n:
        items = Arithmetic(DIFFICULTY).items(Split.DEV, n, None)
        ours = measure_agent2(items, arguments.runs)
        rows.append(ours)
        is_met &= ours.median_us <= GOAL_US
        print(f"{ours.tool:<20} N={n:<6} {ours.median_us:>9.1f} us a sample (goal: at most {GOAL_US:g})", flush=True)
        if not with_inspect:
            continue
        peer = measure_inspect(items, arguments.inspect_runs, arguments.inspect_python)
        rows.append(peer)
        ratio = peer.median_us / ours.median_us
        is_met &= ratio >= GOAL_RATIO
        print(
            f"{peer.tool:<20} N={n:<6} {peer.median_us:>9.1f} us a sample, {ratio:.0f} times ours "
            f"(goal: at least {GOAL_RATIO:g})",
            flush=True,
        )
    if not with_inspect:
        print(
            f"inspect-ai: not measured, {arguments.inspect_python} does not have it; the goal of {GOAL_RATIO:g} times "
            "less was NOT checked (name an interpreter that has it: --inspect-python)"
        )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(row) | {"median_us": row.median_us} for row in rows], indent=1))
        print(arguments.out)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
