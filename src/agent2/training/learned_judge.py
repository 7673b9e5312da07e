"""A judge with a small budget: a few hundred verdicts are bought at once, and a preference model answers from then on.

Asked about are the checkpoint's own replies to train items. Most are chosen from several draws as the one whose content
differs least from the reference, so that the verdict tells something about style; the rest are plain draws, so that the
model sees what wrong content costs. Which replies those are follows from the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from agent2.benchmarks.home import with_scorer
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play_rollouts, score_answers
from agent2.models.hf import HfSampler
from agent2.records import Item, derive_seed
from agent2.training.participant import print_progress
from agent2.training.preference_model import BoughtVerdict, ContentWords, PreferenceModel
from agent2.training.visible import VisibleTask


@dataclass(frozen=True, slots=True)
class AskSettings:
    """How verdicts are bought; shares are 0 to 1."""

    draws: int = 3
    """Replies of which one is asked about."""
    chosen_share: float = 0.75
    """Of items, whose reply is the one with the least different content; of the others it is the first draw."""
    held_out_share: float = 0.15
    """Of verdicts, which only measure the model; it is fitted to all of them afterwards."""


ASKS = AskSettings()


def with_learned_judge(task: VisibleTask, checkpoint: Path, settings: AskSettings = ASKS) -> VisibleTask:
    """The same task with a preference model as its scorer, where the judgements are too few to ask in training.

    checkpoint: whose replies are asked about. Raises ConfigError if no verdict can be bought.
    """
    if not task.learns_judge:
        return task
    pairs = _chosen_replies(task, checkpoint, settings)
    scores = score_answers(task.benchmark, pairs)
    verdicts = [
        BoughtVerdict(item, text, score.value)
        for (item, (text,)), score in zip(pairs, scores, strict=True)
        if score.value is not None
    ]
    if not verdicts:
        reason = scores[0].reason if scores else "no reply was drawn"
        raise ConfigError(f"{task.participant.judgements} judgements: none was given ({reason})")
    print_progress(
        f"{len(verdicts)} verdicts bought, {np.mean([verdict.value for verdict in verdicts]):.3f} on average; "
        + _measure(verdicts, task.train, settings)
    )
    model = PreferenceModel(verdicts, task.train)
    return replace(
        task,
        benchmark=with_scorer(task.benchmark, model),
        participant=replace(task.participant, judgements=None),
    )


def _chosen_replies(task: VisibleTask, checkpoint: Path, settings: AskSettings) -> list[tuple[Item, list[str]]]:
    """The replies to ask about, one to an item, for as many items as there are judgements."""
    seed = task.participant.seed
    rng = np.random.default_rng(derive_seed("asked items", seed))
    chosen = [task.train[int(index)] for index in rng.permutation(len(task.train))[: task.participant.judgements]]
    attempts = [
        Attempt(item, k, derive_seed("asked", seed, item.id, k)) for item in chosen for k in range(settings.draws)
    ]
    # The whole distribution: replies have to differ, whatever the protocol samples with.
    sampling = replace(task.participant.sampling, temperature=1.0, top_p=1.0)
    sampler = HfSampler(checkpoint, max_batch=256, device="cuda" if torch.cuda.is_available() else "cpu")
    answers: dict[str, dict[int, str]] = {item.id: {} for item in chosen}
    try:
        for item, rollout in play_rollouts(attempts, sampler, task.world, PlaySettings(sampling, 1)):
            answers[item.id][rollout.attempt] = rollout.answer or ""
    finally:
        sampler.close()
    content, pairs = ContentWords(task.train), []
    for item in chosen:
        candidates = [reply for _, reply in sorted(answers[item.id].items())]
        if rng.random() < settings.chosen_share:
            different = [sum(content.differences(reply, item.reference or "").values()) for reply in candidates]
            candidates = [reply for _, reply in sorted(zip(different, candidates, strict=True))]
        pairs.append((item, candidates[:1]))
    return pairs


def _measure(verdicts: Sequence[BoughtVerdict], items: Sequence[Item], settings: AskSettings) -> str:
    """How well a model of the other verdicts predicts those that are held out, as a clause."""
    n_fitted = max(1, round((1.0 - settings.held_out_share) * len(verdicts)))
    model = PreferenceModel(verdicts[:n_fitted], items)
    decided = [verdict for verdict in verdicts[n_fitted:] if verdict.value != 0.5]
    if not decided:
        return "none is held out"
    right = [(model.probability(verdict.item, verdict.reply) > 0.5) == (verdict.value > 0.5) for verdict in decided]
    return f"{np.mean(right):.0%} of {len(right)} held out are predicted"
