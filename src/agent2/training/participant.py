"""The parts of an agent's program besides training: read the assignment, measure on dev items, submit.

For programs in an arena workspace, which read the assignment from the environment and `assignment.json`, and talk to
the grader by HTTP, like any other program. A submission whose connection is lost is sent again under the same key,
which the grader charges once. Does NOT retry a refused one: the refusal says what to change.
"""

import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agent2.errors import ConfigError, SubmissionError
from agent2.files import numbered_lines
from agent2.records import SamplingSettings
from agent2.training.reference import AnswerTask, ChatModel, evaluate_model

VARIABLES = ("WORKSPACE", "MODEL_PATH", "DATA_PATH", "OUTPUT_DIR", "GRADING_SERVER_URL")

DataRow = dict[str, Any]
"""{"id", "prompt", "answer"}, or the fields that the assignment names."""
EVALUATION_LOG = "eval_log.jsonl"
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Before a submission whose connection was lost is sent again, in seconds."""
CLOCK_TIMEOUT_S = 10.0
SAMPLING_FIELDS = ("temperature", "top_p", "max_tokens")


@dataclass(frozen=True, slots=True)
class Participant:
    """One agent's view of its assignment."""

    base: Path
    output: Path
    train: list[DataRow]
    dev: list[DataRow]
    sampling: SamplingSettings
    """How completions are sampled when a submission is scored."""
    seed: int
    grading_url: str
    environment: str = "question"
    """Name of the world that items are played in."""
    benchmark: str = ""
    """Where the items come from: a name for `agent2.benchmarks.load_benchmark`."""
    max_turns: int = 1
    """Most messages of the model in one episode."""
    level: int = 1
    """What the task demands: 1 a program verifies, 2 a judge does, 3 trajectories are collected online."""
    wall_clock_s: float = 300.0
    """The time budget of the assignment."""
    judgements: int | None = None
    """Replies that the judge of a task of level 2 gives a verdict on; None: no limit, or no judge to ask."""
    effort: float = 1.0
    """Share of the usual number of GRPO steps or batches, from $AGENT2_EFFORT: below 1 to try a program out."""
    deadline: float | None = None
    """The end of the wall clock by the grader's own, on `time.monotonic`; None: it was not asked."""

    def seconds_until(self, share: float, started: float) -> float:
        """Seconds until this share (0 to 1) of the assignment's wall clock has passed; at least 1.

        started: `time.monotonic()` of the program's first line. What passed before it counts too where the grader was
        asked: on a busy machine the libraries alone may take minutes to load.
        """
        ends_at = started + self.wall_clock_s
        if self.deadline is not None:
            ends_at = min(ends_at, self.deadline)
        return max(1.0, ends_at - (1.0 - share) * self.wall_clock_s - time.monotonic())

    def write_design(self, design: dict[str, Any]) -> None:
        """Write the pipeline design to `design.json`, which the report reads.

        design: algorithm, hyperparameters, data_preprocessing, evaluation_protocol.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / "design.json").write_text(json.dumps(design, indent=2), encoding="utf-8")

    def evaluate_on_dev(self, checkpoint: Path, verify: Callable[[str, str], float]) -> float:
        """Mean reward on the dev items, 0 to 1, with answers sampled as the grader samples them."""
        task = AnswerTask("dev", self.dev, verify)
        value = float(evaluate_model(ChatModel(checkpoint, self.sampling), [task])["dev"])
        self.log_evaluation(checkpoint, {"eval_dev": value})
        return value

    def log_evaluation(self, checkpoint: Path, values: Mapping[str, float]) -> None:
        """Append the measurements of a checkpoint, numbered from 0, to a log beside the training log.

        values: by names that begin with "eval_".
        """
        self.output.mkdir(parents=True, exist_ok=True)
        path = self.output / EVALUATION_LOG
        number = sum(1 for _ in numbered_lines(path.read_text(encoding="utf-8"))) if path.exists() else 0
        line = {"step": number, "t": round(time.time(), 3), "checkpoint": str(checkpoint), **values}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def submit(self, checkpoint: Path, note: str) -> dict[str, Any]:
        """Submit a checkpoint and wait for its score (0 to 100).

        Raises SubmissionError with the grader's reason if it gets none.
        """
        body = {"model_path": str(checkpoint), "note": note, "key": secrets.token_hex(16)}
        response = post_with_retries(f"{self.grading_url}/submit", body)
        answer: dict[str, Any] = response.json()
        if response.is_error or answer.get("score") is None:
            raise SubmissionError(f"submission of {checkpoint} has no score: {answer.get('error') or answer}")
        return answer


def post_with_retries(url: str, body: Mapping[str, str], pauses_s: Sequence[float] = PAUSES_S) -> httpx.Response:
    """Post JSON and wait for the answer, however long it takes; after a lost connection, post the same body again.

    body: with a "key", by which the grader recognises a repeated request. pauses_s: before each new attempt.
    Raises SubmissionError when the grader cannot be reached.
    """
    for pause_s in (*pauses_s, None):
        try:
            response = httpx.post(url, json=body, timeout=None)  # an evaluation may wait in the queue for long
        except httpx.TransportError as error:
            if pause_s is None:
                raise SubmissionError(f"{url}: the grader cannot be reached: {error}; look at its log") from error
            problem = str(error)
        else:
            if response.status_code != httpx.codes.REQUEST_TIMEOUT or pause_s is None:
                return response
            problem = "the grader got the request too slowly"
        print_progress(f"{url}: {problem}; sending it again in {pause_s:g} s")
        time.sleep(pause_s)
    raise AssertionError("unreachable")


def read_deadline(grading_url: str) -> float | None:
    """The end of the wall clock, on `time.monotonic`; None from a grader that does not answer or has no clock."""
    try:
        remaining = httpx.get(f"{grading_url}/time", timeout=CLOCK_TIMEOUT_S).json()["remaining"]
        return time.monotonic() + float(remaining)
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError):
        return None


def read_participant() -> Participant:
    """The assignment of the program that calls this. Raises ConfigError naming a variable or file that is missing."""
    missing = [name for name in VARIABLES if name not in os.environ]
    if missing:
        raise ConfigError(f"${missing[0]} is not set; run this program as an agent of the arena (agent2 run)")
    workspace, base, data, output = (Path(os.environ[name]) for name in VARIABLES[:4])
    try:
        assignment = json.loads((workspace / "assignment.json").read_text(encoding="utf-8"))
        scoring = assignment["scoring"]
        sampling = SamplingSettings(**{name: scoring[name] for name in SAMPLING_FIELDS})
        train, dev = (_rows(data / f"{split}.jsonl") for split in ("train", "dev"))
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"{workspace}: the assignment cannot be read ({error}); start from a fresh workspace"
        ) from error
    return Participant(
        base=base,
        output=output,
        train=train,
        dev=dev,
        sampling=sampling,
        seed=int(os.environ.get("AGENT2_SEED", "0")),
        grading_url=os.environ["GRADING_SERVER_URL"],
        environment=assignment.get("environment", "question"),
        benchmark=assignment.get("benchmark", ""),
        max_turns=scoring.get("max_turns", 1),
        level=assignment.get("level", 1),
        wall_clock_s=assignment.get("budget", {}).get("wall_clock_s", 300.0),
        judgements=assignment.get("budget", {}).get("judgements"),
        effort=_effort(),
        deadline=read_deadline(os.environ["GRADING_SERVER_URL"]),
    )


def print_progress(text: str) -> None:
    """Print one line of an agent's own log, which is its standard output; flushed, so that it can be followed."""
    print(text, flush=True)  # noqa: T201


def _effort() -> float:
    text = os.environ.get("AGENT2_EFFORT", "1")
    try:
        effort = float(text)
    except ValueError:
        effort = math.nan
    if not 0 < effort < math.inf:
        raise ConfigError(f"$AGENT2_EFFORT is {text!r}; set it to a number above 0, as 0.1 for a tenth of the work")
    return effort


def _rows(path: Path) -> list[DataRow]:
    return [json.loads(line) for _, line in numbered_lines(path.read_text(encoding="utf-8"))]


def start_recipe(question: str, episodes: str) -> None:
    """Run one of two programs beside this one, by whether an item is a question or an episode; does not return.

    The program replaces this process, so that a record of the processes shows which one trained.
    Raises ConfigError outside an arena workspace.
    """
    if "WORKSPACE" not in os.environ:
        raise ConfigError("$WORKSPACE is not set; run this program as an agent of the arena (agent2 run)")
    assignment = json.loads(Path(os.environ["WORKSPACE"], "assignment.json").read_text(encoding="utf-8"))
    name = episodes if assignment["scoring"].get("max_turns", 1) > 1 else question
    os.execv(sys.executable, [sys.executable, str(Path(sys.argv[0]).resolve().with_name(name))])


def run_recipe(run: "Callable[[Participant], None]") -> None:
    """Read the assignment and run a recipe, without the progress bars of the libraries."""
    # not at the top: programs that only call `start_recipe` are replaced at once and need none of it
    import datasets
    from transformers.utils import logging as transformers_logging

    from agent2.training.running import use_threads

    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    use_threads()
    run(read_participant())
