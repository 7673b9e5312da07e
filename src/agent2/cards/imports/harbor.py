"""Jobs and trials of Harbor: the folder of a job, or a trial's folder or `result.json`.

A trial is an attempt at its task; one of the verifier's rewards is the score (`reward` if there is one, else the
first), the others are views. The agent's trajectory (`agent/trajectory.json`, ATIF), if there is one, gives the turns.
Missing are trials without a reward, those whose exception Harbor itself does not count as a valid result (its
`reward_valid`; in files of older versions by the name of the exception), and those that were cut off. A trial that ran
out of its agent's time and was verified counts as scored.

A job of several agents, models or datasets has one evaluation for each: choose one with --filter.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from agent2.cards.imports import atif
from agent2.cards.imports.foreign_log import UNKNOWN, ForeignLog, lost_rollout, stated_score
from agent2.cards.imports.messages import first_line
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, require_metric, shaped
from agent2.errors import ConfigError, Fault, unknown_name
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout, Turn, Usage, token_count

INVALID = frozenset(
    re.findall(
        r"\w+",
        """EnvironmentStartTimeoutError SandboxBuildFailedError AgentSetupTimeoutError HealthcheckError
        SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError GKEExecStreamClosedError
        GKEPodNotFoundError RuntimeRequestError AddTestsDirError DownloadVerifierDirError ApiError
        ApiRateLimitError ApiInternalServerError ApiOverloadedError ApiConnectionClosedError
        ApiResponseStalledError UnknownApiError NetworkConnectionError ApiConnectionError ApiUsageLimitError
        RateLimitError InternalServerError ServiceUnavailableError APIConnectionError APIError Timeout
        UnsupportedModelParametersError BadRequestError UnprocessableEntityError UnsupportedParamsError
        APIResponseValidationError BudgetExceededError VerifierTimeoutError RewardFileNotFoundError
        RewardFileEmptyError VerifierOutputParseError AgentAuthenticationError ModelNotFoundError
        ApiProviderResourceNotFoundError AuthenticationError PermissionDeniedError NotFoundError
        ServiceOperationsUnsupportedError VercelScopeError DspyImportError MissingExtraError RegradeError
        CancelledError""",
    )
)
"""Exceptions after which Harbor 0.26 calls a reward invalid."""


class _HarborModel(msgspec.Struct):
    name: str
    provider: str | None = None


class _HarborAgent(msgspec.Struct):
    name: str
    version: str = UNKNOWN
    model_info: _HarborModel | None = None


class _HarborContext(msgspec.Struct):
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None


class _HarborVerdict(msgspec.Struct):
    rewards: dict[str, float] | None = None


class _HarborException(msgspec.Struct):
    exception_type: str
    exception_message: str = ""
    policy: dict[str, Any] | None = None


class _HarborSpan(msgspec.Struct):
    started_at: str | None = None
    finished_at: str | None = None


class _HarborStep(msgspec.Struct):
    step_name: str
    agent_result: _HarborContext | None = None
    exception_info: _HarborException | None = None


class HarborTrial(msgspec.Struct):
    """What is read of a trial's result."""

    task_name: str
    trial_name: str
    agent_info: _HarborAgent
    task_checksum: str = ""
    source: str | None = None
    agent_result: _HarborContext | None = None
    verifier_result: _HarborVerdict | None = None
    exception_info: _HarborException | None = None
    started_at: str | None = None
    finished_at: str | None = None
    agent_execution: _HarborSpan | None = None
    step_results: list[_HarborStep] | None = None
    reward_valid: bool | None = None

    @property
    def evaluation(self) -> str:
        """Agent, model and dataset, which are one evaluation."""
        model = self.agent_info.model_info
        return f"{self.agent_info.name}/{model.name if model else 'no-model'}@{self.source or 'adhoc'}"

    @property
    def exceptions(self) -> list[_HarborException]:
        """Of the trial and of its steps."""
        recorded = [self.exception_info, *(step.exception_info for step in self.step_results or ())]
        return [exception for exception in recorded if exception is not None]


def recognises(source: LogSource) -> bool:
    """Whether a source is a trial, or the folder of a job or a trial."""
    if source.path.is_dir():
        return bool(_trial_files(source.path)) or _is_trial(source.path / "result.json")
    return _is_trial_document(source.head) or _is_job_document(source.head)


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The trials of a job, or a trial alone.

    Raises ConfigError for another layout, and for several evaluations if none of them is chosen.
    """
    folder = source.path if source.path.is_dir() else source.path.parent
    trials, lost = _trials(source)
    if not trials:
        raise ConfigError(f"{source.path}: holds no trial with a result.json; give the folder of a job or of a trial")
    evaluations = list(dict.fromkeys(trial.evaluation for _, trial in trials))
    evaluation = _chosen_evaluation(evaluations, choice, source.path)
    trials = sorted(
        ((place, trial) for place, trial in trials if trial.evaluation == evaluation),
        key=lambda pair: (pair[1].task_name, pair[1].started_at or "", pair[1].trial_name),
    )
    if len({trial.trial_name for _, trial in trials}) < len(trials):
        raise ConfigError(f"{source.path}: has a trial twice; remove the copy")
    names = dict.fromkeys(name for _, trial in trials for name in _rewards(trial))
    ordered = sorted(names, key=lambda name: name != "reward") or ["reward"]
    metric = require_metric(choice, ordered, source.path)
    attempts: Counter[str] = Counter()
    records = []
    for place, trial in trials:
        records.append(_record(trial, attempts[trial.task_name], metric, place))
        attempts[trial.task_name] += 1
    # A trial that never wrote its result states its task only; it counts where the job has one evaluation.
    for task_name, reason in lost if len(evaluations) == 1 else ():
        records.append(lost_rollout(task_name, attempts[task_name], reason))
        attempts[task_name] += 1
    first = trials[0][1]
    model, n_planned = first.agent_info.model_info, _planned(folder) if len(evaluations) == 1 else 0
    checksums = {trial.task_name: trial.task_checksum for _, trial in trials}
    return ForeignLog(
        harness=f"harbor, agent {first.agent_info.name} {first.agent_info.version}",
        task=f"{first.source or 'adhoc'}-v{UNKNOWN}",
        model=first.agent_info.name if model is None else "/".join(filter(None, (model.provider, model.name))),
        scorer=metric,
        questions=[(task_name, checksums.get(task_name, "")) for task_name in attempts],
        rollouts=records,
        settings={},
        attempts=max(attempts.values()),
        lock={"agent": first.agent_info.name, "agent_version": first.agent_info.version, "evaluation": evaluation},
        assumed=[
            "attempts: the trials of a task, in the order in which they began",
            *([f"the job is not complete: {len(records)} of {n_planned} trials"] if len(records) < n_planned else []),
        ],
    )


def _is_trial_document(document: Any) -> bool:
    return isinstance(document, dict) and {"task_name", "trial_name", "agent_info"} <= document.keys()


def _is_job_document(document: Any) -> bool:
    return isinstance(document, dict) and {"n_total_trials", "stats"} <= document.keys()


def _is_trial(path: Path) -> bool:
    return path.is_file() and _is_trial_document(document_of(path))


def _trial_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*/result.json")) if _is_trial(path)]


def _trials(source: LogSource) -> tuple[list[tuple[Path, HarborTrial]], list[tuple[str, str]]]:
    """(folder, trial) of each trial, and (task, reason) of those that wrote no result."""
    path = source.path
    if not path.is_dir() and not _is_job_document(source.head):
        return [(path.parent, shaped(source.document, HarborTrial, str(path)))], []
    folder = path if path.is_dir() else path.parent
    if _is_trial(folder / "result.json"):
        file = folder / "result.json"
        return [(folder, shaped(document_of(file), HarborTrial, str(file)))], []
    files = _trial_files(folder)
    trials = [(file.parent, shaped(document_of(file), HarborTrial, str(file))) for file in files]
    stored = (document_of(folder / "result.json") or {}) if (folder / "result.json").is_file() else {}
    if not trials and isinstance(stored.get("trial_results"), list):
        inside = shaped(stored["trial_results"], list[HarborTrial], f"{folder / 'result.json'}: trial_results")
        trials = [(folder / trial.trial_name, trial) for trial in inside]
    lost = [
        _lost(config)
        for config in sorted(folder.glob("*/config.json"))
        if not (config.parent / "result.json").is_file()
    ]
    return trials, lost


def _lost(config: Path) -> tuple[str, str]:
    """Task of a trial that wrote no result, and why its score is missing."""
    stated = document_of(config)
    task = stated.get("task") if isinstance(stated, dict) else None
    place = str(task.get("name") or task.get("path") or "") if isinstance(task, dict) else ""
    name = Path(place).name or config.parent.name.partition("__")[0]
    return name, f"trial {config.parent.name} wrote no result: it was cut off or still runs"


def _planned(folder: Path) -> int:
    """How many trials the job planned; 0 if that is not known."""
    file = folder / "result.json"
    stated = document_of(file) if file.is_file() else {}
    planned = stated.get("n_total_trials") if _is_job_document(stated) else 0
    return planned if isinstance(planned, int) else 0


def _chosen_evaluation(evaluations: Sequence[str], choice: LogChoice, path: Path) -> str:
    if choice.filter_name is None:
        if len(evaluations) > 1:
            raise ConfigError(
                f"{path}: has {len(evaluations)} evaluations; choose one with --filter: {', '.join(evaluations)}"
            )
        return evaluations[0]
    if choice.filter_name not in evaluations:
        raise unknown_name("evaluation", choice.filter_name, evaluations, f"{path}: --filter")
    return choice.filter_name


def _rewards(trial: HarborTrial) -> Mapping[str, float]:
    return (trial.verifier_result.rewards or {}) if trial.verifier_result is not None else {}


def _record(trial: HarborTrial, attempt: int, metric: str, folder: Path) -> ScoredRollout:
    opening, turns, answer, usage = _played(trial, folder)
    score = _score(trial, metric)
    is_failed = score.value is None and score.fault is not Fault.JUDGE
    is_timeout = any(exception.exception_type == "AgentTimeoutError" for exception in trial.exceptions)
    status = RolloutStatus.TIME_CAP if is_timeout else RolloutStatus.COMPLETED
    rollout = Rollout(
        item_id=trial.task_name,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.FAILED if is_failed else status,
        prompt=opening,
        turns=turns,
        answer=answer,
        state={"trial": trial.trial_name},
        usage=usage,
        fault=score.fault if is_failed else None,
        reason=score.reason if is_failed else "",
    )
    return ScoredRollout(rollout, score)


def _score(trial: HarborTrial, metric: str) -> Score:
    rewards = _rewards(trial)
    invalid = [exception for exception in trial.exceptions if not _leaves_valid(exception)]
    if invalid or trial.reward_valid is False or not rewards:
        exceptions = invalid or trial.exceptions
        reasons = "; ".join(
            f"{exception.exception_type}: {first_line(exception.exception_message)}" for exception in exceptions
        )
        reason = f"the trial has no valid reward ({reasons or 'the verifier gave none'})"
        is_verifier = not exceptions or all("Verifier" in exception.exception_type for exception in exceptions)
        return Score(None, reason, Fault.JUDGE if is_verifier else Fault.INFRASTRUCTURE)
    return stated_score(rewards, metric, f"{metric} as the verifier gave it")


def _leaves_valid(exception: _HarborException) -> bool:
    stated = (exception.policy or {}).get("has_valid_reward")
    return stated if isinstance(stated, bool) else exception.exception_type not in INVALID


def _played(trial: HarborTrial, folder: Path) -> tuple[list[Message], list[Turn], str | None, Usage]:
    """Opening, turns, final answer and cost of a trial, as far as its agent's trajectories state them."""
    steps = [folder / "steps" / Path(step.step_name).name for step in trial.step_results or ()]
    files = [place / "agent" / "trajectory.json" for place in [folder, *steps]]
    trajectories = [atif.trajectory_of(file) for file in files if file.is_file()]
    opening: list[Message] = []
    turns: list[Turn] = []
    for trajectory in trajectories:
        messages, new_turns = atif.conversation(trajectory)
        opening = opening or messages
        turns += new_turns
    contexts = [trial.agent_result, *(step.agent_result for step in trial.step_results or ())]
    stated = [context for context in contexts if context is not None]
    tokens = [
        sum(count or 0 for count in counts) if any(count is not None for count in counts) else None
        for counts in (
            [context.n_input_tokens for context in stated],
            [context.n_output_tokens for context in stated],
        )
    ]
    if tokens == [None, None] and len(trajectories) == 1:
        usage = atif.usage_of(trajectories[0], _seconds(trial))
    else:
        usage = Usage(token_count(tokens[0]), token_count(tokens[1]), _seconds(trial))
    answer = atif.answer_of(trajectories[-1], turns) if trajectories else None
    return opening, turns, answer, usage


def _seconds(trial: HarborTrial) -> float:
    """Wall clock of the agent, else of the whole trial; 0 if neither is stated."""
    span = trial.agent_execution or _HarborSpan()
    for began, ended in ((span.started_at, span.finished_at), (trial.started_at, trial.finished_at)):
        if began is not None and ended is not None:
            try:
                return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())
            except (ValueError, TypeError):
                continue
    return 0.0
