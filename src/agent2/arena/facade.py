"""The benchmark as a Python object: submit pipeline code as a string, get its evaluation back.

    environment = RLBenchEnvironment("arithmetic")
    result = environment.submit_solution(code)
    environment.get_feedback(result["run_id"])

The code is run as an agent: in the sandbox, in a fresh workspace, with the variables of ASSIGNMENT.md. If it
did not submit anything itself, the folder `$OUTPUT_DIR/model` is submitted for it when it exits with code 0.
"""

from pathlib import Path

import msgspec

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import Steps, run_trial
from agent2.benchmarks import BASE_MODELS, DEMO_TASK
from agent2.errors import ConfigError
from agent2.records import JsonValue, Split

AGENT_YAML = """\
name: solution
description: pipeline code handed in through the Python facade
command: [python, /agent/submit_what_it_made.py]
"""
SUBMITTER = '''\
"""Runs the solution; submits $OUTPUT_DIR/model if the solution did not submit anything itself."""
import os
import subprocess
import sys

import httpx

# a process of its own, so that the record of the trial names the program that trains
ended = subprocess.run([sys.executable, "/agent/solution.py"])
if ended.returncode:
    sys.exit(ended.returncode if ended.returncode > 0 else 128 - ended.returncode)
url = os.environ["GRADING_SERVER_URL"]
made = os.path.join(os.environ["OUTPUT_DIR"], "model")
if not httpx.get(f"{url}/submissions", timeout=None).json()["submissions"] and os.path.isdir(made):
    answer = httpx.post(f"{url}/submit", json={"model_path": made, "note": "made by the solution"}, timeout=None)
    print(answer.text)
'''


class RLBenchEnvironment:
    """One task of the arena, for pipeline code in a string."""

    def __init__(
        self, task: str = DEMO_TASK, *, out: Path = Path("trials"), seed: int = 0, sandbox: str = "bubblewrap"
    ):
        self._task = load_task(task)
        self._task_name = task
        self._out = out
        self._seed = seed
        self._sandbox = sandbox
        self.runs: dict[str, dict[str, JsonValue]] = {}
        """Results by run id."""

    @property
    def available_models(self) -> list[str]:
        """The base models that there is a recipe for; the task uses the first."""
        return [self._task.base_model, *sorted(set(BASE_MODELS) - {self._task.base_model})]

    @property
    def compute_budget(self) -> dict[str, JsonValue]:
        """What one solution may spend; None is unlimited."""
        return self._task.budget.model_dump(mode="json")

    @property
    def datasets(self) -> dict[str, int]:
        """Number of items of each split; the test splits are hidden."""
        return {split.value: self._task.n_items[split] for split in Split}

    def submit_solution(self, agent_code: str, *, overrides: tuple[str, ...] = ()) -> dict[str, JsonValue]:
        """Run pipeline code in a fresh workspace and evaluate the checkpoint that it trained.

        overrides: as in `agent2 run --set`. Returns the same record as `get_feedback`.
        """
        number = len(self.runs) + 1
        run_id = f"{self._task.name}-solution-{number}"
        while (self._out / run_id).exists() or (self._out / "solutions" / run_id).exists():
            number += 1
            run_id = f"{self._task.name}-solution-{number}"
        folder = self._out / "solutions" / run_id
        folder.mkdir(parents=True)
        (folder / "agent.yaml").write_text(AGENT_YAML, encoding="utf-8")
        (folder / "solution.py").write_text(agent_code, encoding="utf-8")
        (folder / "submit_what_it_made.py").write_text(SUBMITTER, encoding="utf-8")
        root = new_trial(
            self._task_name,
            str(folder.resolve()),
            self._seed,
            self._out,
            sandbox=self._sandbox,
            overrides=overrides,
            trial_id=run_id,
        )
        run_trial(root, _quiet)
        self.runs[run_id] = {"run_id": run_id, **feedback(root)}
        return self.runs[run_id]

    def get_feedback(self, run_id: str) -> dict[str, JsonValue]:
        """The execution results of a stored run.

        Raises ConfigError for an id that this object did not run and that is not a trial in its folder.
        """
        if run_id not in self.runs:
            root = self._out / run_id
            if not (root / "trial.json").is_file():
                raise ConfigError(f"unknown run {run_id!r}; known: {', '.join(sorted(self.runs)) or 'none'}")
            self.runs[run_id] = {"run_id": run_id, **feedback(root)}
        return self.runs[run_id]


def feedback(root: Path) -> dict[str, JsonValue]:
    """The result of a trial as the author of a solution gets it: gain, submissions, how it ended, end of its log."""
    evidence = read_evidence(root)
    analysis = analyse(evidence)
    return {
        "agent_end": evidence.agent_end.value,
        "exit_code": evidence.agent_exit_code,
        "base_score": evidence.base_public.value,
        "submissions": [
            {
                "number": s.number,
                "state": s.state.value,
                "score": s.score.value if s.score else None,
                "reason": s.reason,
            }
            for s in evidence.submissions
        ],
        "gain": msgspec.to_builtins(evidence.gain),
        "route": analysis.route.label,
        "log_tail": evidence.agent_log_tail,
        "trial": str(root),
    }


_quiet: Steps = lambda message, done=None, total=None: None  # noqa: E731
