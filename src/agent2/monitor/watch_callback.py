"""A Trainer callback that does what `agent2 watch` decides: it pauses the training, or rolls it back.

    trainer = GRPOTrainer(..., callbacks=[WatchCallback("evaluations/grpo")])

The folder is the watch's `--out`, which may appear later. At the end of each step the callback looks for a new
`action.json` there; on `pause` and `pause_human_review` training stops, on `rollback` the weights of the best evaluated
checkpoint are loaded first. `pause.json` in the same folder says why, and which checkpoint to resume from. A request
from before the training began is ignored, and so is one that no watch writes. Only a checkpoint below the training's
`output_dir` is loaded: whoever can write into the folder cannot bring weights of his own.

With `wait_s` the training waits after each save until its checkpoint was evaluated, at most so long: then no step is
taken on a checkpoint that has failed. Does NOT roll back an adapter or a sharded model: training pauses, and
`pause.json` names the checkpoint.
"""

import json
import logging
import time
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agent2.analysis.history import EvaluationState, read_evaluation
from agent2.contract.gates import TrainingAction
from agent2.contract.suite import EvaluationRole
from agent2.files import write_json
from agent2.foreign_files import MAX_LOG_BYTES, MAX_TEXT_BYTES, read_limited
from agent2.monitor.checkpoint_watch import ACTION, LOG
from agent2.monitor.signals import PAUSE_FILE

_log = logging.getLogger(__name__)
POLL_S = 0.5
STOPS = tuple(action.value for action in TrainingAction if action is not TrainingAction.CONTINUE)
"""Actions that a watch requests."""


class WatchCallback(TrainerCallback):  # type: ignore[misc]
    """Carries out the requests of a watch."""

    def __init__(self, out: str | Path, wait_s: float = 0.0) -> None:
        self._out, self._wait_s = Path(out), wait_s
        self._seen: dict[str, Any] | None = None
        self.stopped_by: dict[str, Any] | None = None
        """The request that stopped the training; None: none did."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note what was requested of an earlier run, and warn where no watch has written yet."""
        self._seen = self._request()
        if not self._out.is_dir():
            _log.warning(
                "%s is not there yet: only a watch that writes into this folder can stop the training (agent2 watch "
                "prints its folder first)",
                self._out,
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Carry out a new request."""
        self._obey(args.output_dir, state, control, kwargs)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Wait for the evaluation of what was just saved, if so told, and carry out what follows."""
        ends_at = time.monotonic() + self._wait_s
        folder = self._out / f"step-{state.global_step}-{EvaluationRole.DEV.value}"
        while time.monotonic() < ends_at and not self._is_evaluated(folder, state.global_step):
            time.sleep(POLL_S)
        self._obey(args.output_dir, state, control, kwargs)

    def _is_evaluated(self, folder: Path, step: int) -> bool:
        request = self._request()
        if request is not None and request != self._seen:
            return True
        is_decided = (folder / "report.json").is_file() and read_evaluation(folder).state is EvaluationState.DECIDED
        # the watch writes its line after its request, if it has one
        return is_decided and step in self._logged_steps()

    def _logged_steps(self) -> set[int]:
        try:
            lines = read_limited(self._out / LOG, MAX_LOG_BYTES).decode("utf-8").splitlines()
            return {json.loads(line)["step"] for line in lines if line.endswith("}")}
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ):  # not there yet, or its last line is being written
            return set()

    def _request(self) -> dict[str, Any] | None:
        try:
            request = json.loads(read_limited(self._out / ACTION, MAX_TEXT_BYTES).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        is_whole = isinstance(request, dict) and isinstance(request.get("reasons", []), list)
        return request if is_whole and request.get("action") in STOPS else None

    def _obey(self, folder: str | None, state: TrainerState, control: TrainerControl, parts: dict[str, Any]) -> None:
        """Carry out a new request. folder: that the training saves into."""
        request = self._request()
        if self.stopped_by is not None or request is None or request == self._seen:
            return
        self._seen = self.stopped_by = request
        last_good = request.get("last_good")
        is_rolled_back = (
            request["action"] == TrainingAction.ROLLBACK.value
            and _is_within(last_good, folder)
            and _load(parts["model"], str(last_good))
        )
        control.should_training_stop = True
        write_json(
            self._out / PAUSE_FILE,
            {
                "action": request["action"],
                "step": state.global_step,
                "evaluated_step": request.get("step"),
                "reasons": request.get("reasons", []),
                "resume_from": last_good,
                "last_good_step": request.get("last_good_step"),
                "is_rolled_back": is_rolled_back,
                "needs_human_review": request["action"] == TrainingAction.PAUSE_HUMAN_REVIEW.value,
            },
        )
        _log.warning(
            "training stopped at step %d: %s after the evaluation of step %s: %s",
            state.global_step, request["action"], request.get("step"), "; ".join(map(str, request.get("reasons", []))),
        )  # fmt: skip


def _is_within(checkpoint: object, folder: str | None) -> bool:
    """Whether a checkpoint is a folder below that of the training, links resolved."""
    if not isinstance(checkpoint, str) or folder is None:
        return False
    try:
        place = Path(checkpoint).resolve()
        is_own = place.is_dir() and place.is_relative_to(Path(folder).resolve())
    except (OSError, ValueError):  # a name that no file can have
        is_own = False
    if not is_own:
        _log.warning("%r is no checkpoint of this training; it is not loaded, training pauses", checkpoint[:200])
    return is_own


def _load(model: Any, folder: str) -> bool:
    """Load the weights of a checkpoint into a model; False: that is not possible here."""
    if hasattr(model, "peft_config"):
        return False
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, dtype=model.dtype, trust_remote_code=False, local_files_only=True
        )
        weights = loaded.state_dict()
        model.load_state_dict(weights)
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("%s could not be loaded (%s); training pauses instead", folder, error)
        return False
    return True
