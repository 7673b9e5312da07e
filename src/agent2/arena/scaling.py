"""Scaling: the recorded pipeline of a trial on other base models, larger, smaller or of another family.

The program runs again as `agent2 reproduce` runs it (the agent's files, an LLM's recorded answers, the same task,
hidden items, budget and seed), with another base model in the place of the recorded one. Each base is its own control:
a pipeline works on it if its own gain on private items is shown by interval, p-value and noise band.

What differs between the bases besides their size (architecture, chat template, vocabulary) is named beside each result:
such a row does not show what size alone does. A model that cannot be played at all is refused before anything runs.
Does NOT give a pipeline more time on a larger model: the budget is the recorded one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, efficiency_of
from agent2.arena.analysis.verdicts import ResultKind
from agent2.arena.evidence import TrialEvidence
from agent2.arena.scale_rows import ScaleRow, ScaleVerdict
from agent2.arena.spec import TrialConfig
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import BASE_MODELS
from agent2.errors import CheckpointError, ConfigError
from agent2.models.bases import ensure_base_model, is_path
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint, require_template
from agent2.models.tiny_recipe import OnProgress
from agent2.stats.comparisons import Claim


@dataclass(frozen=True, slots=True)
class ScaleModel:
    """A base model that the pipeline is to run on."""

    name: str
    info: CheckpointInfo | None
    """None: refused."""
    problem: str = ""


def resolve_models(names: Sequence[str], on_step: OnProgress) -> list[ScaleModel]:
    """The models by name or folder, built or unpacked first; one that cannot be played has its problem.

    Raises ConfigError for a name that is given twice, or for none.
    """
    if not names:
        raise ConfigError("name at least one base model: --model NAME (agent2 models list)")
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ConfigError(f"--model {repeated[0]}: is named twice; name each base model once")
    models = []
    for name in names:
        try:
            info = inspect_checkpoint(ensure_base_model(name, BASE_MODELS, on_step))
            if info.is_adapter:
                raise CheckpointError(f"{info.path}: contains an adapter; merge it into its base model first")
            require_template(info)
            models.append(ScaleModel(name, info))
        except (ConfigError, CheckpointError) as error:
            models.append(ScaleModel(name, None, str(error)))
    return models


def scaled_config(config: TrialConfig, model: ScaleModel) -> TrialConfig:
    """The configuration of a reproduction on another base model. Raises ConfigError for a model that is refused."""
    if model.info is None:
        raise ConfigError(f"base model {model.name}: {model.problem}")
    name = str(model.info.path) if is_path(model.name) else model.name
    return config.model_copy(update={"base_model": name})


def recorded_row(source: Path, on_step: OnProgress) -> tuple[ScaleRow, CheckpointInfo]:
    """The recorded trial as a row, and its base model. Raises ConfigError if that is not here any more."""
    name = read_config(TrialPaths(source).trial_json).base_model
    try:
        info = inspect_checkpoint(ensure_base_model(name, BASE_MODELS, on_step))
    except CheckpointError as error:
        raise ConfigError(f"{source}: its base model is not here any more ({error})") from error
    return replace(measured_row(source, ScaleModel(name, info), info), is_recorded=True), info


def refused_row(model: ScaleModel) -> ScaleRow:
    """The row of a model that nothing was run on."""
    return ScaleRow(model.name, ScaleVerdict.REFUSED, model.problem)


def lost_row(model: ScaleModel, recorded: CheckpointInfo, reason: str) -> ScaleRow:
    """The row of a model whose trial the machine or the harness failed."""
    return replace(_described(model, recorded), verdict=ScaleVerdict.LOST, reason=reason)


def measured_row(root: Path, model: ScaleModel, recorded: CheckpointInfo) -> ScaleRow:
    """The row of a finished trial. Raises ConfigError if it is not finished."""
    evidence = read_evidence(root)
    verdict, reason = _verdict(evidence)
    efficiency = efficiency_of(evidence)
    is_measured = evidence.final_submission is not None
    return replace(
        _described(model, recorded),
        verdict=verdict,
        reason=reason,
        trial=evidence.trial_id,
        base=evidence.base_private,
        final=evidence.final_private,
        gain=evidence.gain if is_measured else None,
        noise=evidence.noise.half_width or None,
        minutes=(evidence.ended_at - evidence.started_at) / 60,
        cpu_minutes=efficiency.cpu_s / 60 if efficiency.cpu_s is not None else None,
        peak_bytes=efficiency.max_rss_bytes,
    )


def base_differences(info: CheckpointInfo, recorded: CheckpointInfo) -> tuple[str, ...]:
    """How a base model differs from the recorded one besides its size, one clause each."""
    differences = []
    if info.architecture != recorded.architecture:
        differences.append(f"architecture: {recorded.architecture} -> {info.architecture}")
    if info.chat_template_digest != recorded.chat_template_digest:
        differences.append("another chat template")
    if info.config.get("vocab_size") != recorded.config.get("vocab_size"):
        differences.append(f"vocabulary: {recorded.config.get('vocab_size')} -> {info.config.get('vocab_size')} tokens")
    return tuple(differences)


def count_weights(info: CheckpointInfo) -> int:
    """Numbers in all tensors."""
    return sum(prod(tensor.shape) for tensor in info.tensors.values())


def _described(model: ScaleModel, recorded: CheckpointInfo) -> ScaleRow:
    row = ScaleRow(model.name, ScaleVerdict.LOST, "")
    if model.info is None:
        return row
    return replace(
        row,
        n_weights=count_weights(model.info),
        architecture=model.info.architecture,
        differences=base_differences(model.info, recorded),
    )


def _verdict(evidence: TrialEvidence) -> tuple[ScaleVerdict, str]:
    result = analyse(evidence).result
    if evidence.llm is not None and evidence.llm.n_differences:
        return ScaleVerdict.LOST, (
            f"the program sent its LLM {evidence.llm.n_differences} requests that had no recorded answer, so it is not "
            "the recorded one any more"
        )
    if result.kind in {ResultKind.NOT_MEASURED, ResultKind.NOT_CLEARED}:
        return ScaleVerdict.LOST, result.words
    if result.kind is not ResultKind.MEASURED:
        return ScaleVerdict.FAILS, result.words
    verdicts = {Claim.BETTER: ScaleVerdict.WORKS, Claim.WORSE: ScaleVerdict.WORSE}
    return verdicts.get(result.claim or Claim.UNCLEAR, ScaleVerdict.NOT_SHOWN), result.why
