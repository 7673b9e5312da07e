"""Runs one evaluation in a process of its own, with a deadline.

The child gets an environment of its own making (no secret, no key, no network for model hubs) and the job on
its standard input. What it prints goes to a log beside the card. However it ends, there is an outcome: a
child that crashes or overruns is an infrastructure fault with a reason, never a score.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome, EvaluationStopped
from agent2.errors import Fault

logger = logging.getLogger(__name__)

POLL_S = 0.1
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "LANG", "LC_ALL")
"""Variables of the harness that an evaluation may need; nothing else is inherited."""

Evaluate = Callable[[EvaluationJob, threading.Event], EvaluationOutcome]
"""Plays a job to its outcome; raises EvaluationStopped soon after the event is set."""


@dataclass(frozen=True, slots=True)
class ChildEvaluator:
    """Evaluates in a child process."""

    timeout_s: float
    """Longest that one evaluation may take, loading included."""

    def __call__(self, job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        """Run the child to its end. Raises EvaluationStopped if `stop` was set meanwhile; the child is gone then."""
        job = job.model_copy(update={"parent_pid": os.getpid()})
        job.card.parent.mkdir(parents=True, exist_ok=True)
        with log_of(job.card).open("ab") as log, tempfile.TemporaryFile(dir=job.scratch) as question:
            question.write(job.model_dump_json().encode())
            question.seek(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agent2.arena.grader.child"],
                stdin=question,  # not a pipe: a job is larger than one holds
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=job.scratch,
                env=_environment(job),
                start_new_session=True,  # Ctrl-C at the terminal is the harness's to handle
            )
            try:
                output = _wait_for_output(process, self.timeout_s, stop)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if output is None:
            return _infrastructure(
                f"the evaluation did not end within {self.timeout_s:g} seconds, so nothing is known about the "
                "score; submit again, and make sure that the model ends its answers"
            )
        return _read_outcome(process.returncode, output)


def log_of(card: Path) -> Path:
    """What the child printed while it made a card."""
    return card.with_name(f"{card.name}.log")


def _environment(job: EvaluationJob) -> dict[str, str]:
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    threads = str(job.threads)
    return own | {
        "HOME": str(job.scratch),
        "TMPDIR": str(job.scratch),
        "HF_HOME": str(job.scratch),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "AGENT2_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",
    }


def _wait_for_output(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event) -> bytes | None:
    """What the child prints until it ends; None when the time is over."""
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=POLL_S)[0]
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise EvaluationStopped from None
        if time.monotonic() >= ends_at:
            return None


def _read_outcome(code: int, output: bytes) -> EvaluationOutcome:
    if code == 0:
        try:
            return EvaluationOutcome.model_validate_json(output)
        except ValidationError:
            logger.exception("the evaluating process printed no outcome")
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    memory = " (often: out of memory)" if code == -signal.SIGKILL else ""
    return _infrastructure(
        f"the evaluating process {how}{memory} before it had a result, so nothing is known about the score; "
        "submit again, and check first that the folder loads with transformers"
    )


def _infrastructure(reason: str) -> EvaluationOutcome:
    return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason, is_resumable=True)
