"""The scores that a trial itself needs: base model, noise band, and the final checkpoint on private items.

Base scores are cached per installation under a key made of content digests (checkpoint, items, sampling,
scorer, version), never of paths or times, so that every trial of a sweep has the same base card.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent2 import __version__, installation
from agent2.arena.evidence import NoiseBand, SubmissionRecord, SubmissionState
from agent2.arena.spec import ScoringMachine, TaskSpec
from agent2.cards.aggregate import counted_value
from agent2.cards.reader import iter_rollouts, read_header, read_summary
from agent2.errors import NotEnoughData
from agent2.models.checkpoint import CheckpointInfo
from agent2.plugins import source_digest_of
from agent2.records import Benchmark, Item, Split, derive_seed, digest_of
from agent2.stats.comparisons import noise_band, paired_difference
from agent2.stats.estimates import Estimate, PairedDifference

NOISE_REPLICATES = 4
"""Sampling seeds of the base model from which the noise band is measured."""


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with its benchmark and the installation secret: what its items, hidden ones included, are made from.

    Never leaves the harness.
    """

    spec: TaskSpec
    benchmark: Benchmark
    secret: bytes

    def items(self, split: Split) -> list[Item]:
        """The items of one split."""
        with (
            installation.access_already_logged()
        ):  # the trial, or the check of the task, has made an entry in the access log
            return self.benchmark.items(split, self.spec.n_items[split], self.secret)


def log_task_access(task: LoadedTask, role: str, checkpoint: str = "", baseline: str = "", out: str = "") -> None:
    """An entry in the access log: the private items of a task are about to be used. Raises ConfigError if it cannot."""
    installation.log_access(
        installation.Access(
            is_granted=True,
            split=Split.TEST_PRIVATE.value,
            role=role,
            suite=task.spec.name,
            suite_digest=digest_of(task.spec.model_dump(mode="json", exclude={"held_out"})),
            checkpoint=checkpoint,
            baseline=baseline,
            out=out,
        )
    )


def card_key(
    task: LoadedTask, base: CheckpointInfo, split: Split, attempts: int, machine: ScoringMachine | None = None
) -> str:
    """Key of a cached card: equal exactly when playing again would give the same card.

    machine: None: the CPU in 32-bit floats.
    """
    benchmark, machine = task.benchmark, machine or ScoringMachine()
    return digest_of(
        {
            "version": __version__,
            "checkpoint": base.content_digest,
            "items": digest_of(task.items(split)),
            "sampling": benchmark.sampling,
            "attempts": attempts,
            "max_turns": benchmark.max_turns,
            "machine": [machine.device, machine.precision],
            "environment": benchmark.environment_version(),
            "scorer": [benchmark.scorer().name, benchmark.scorer().version],
            # code from outside the package may change without a new version
            **({"source": source} if (source := source_digest_of(benchmark)) else {}),
        }
    )


def fetch_cached(key: str, card: Path) -> bool:
    """Copy a cached card into the trial; False if there is none."""
    cached = installation.baselines_dir() / key
    if not cached.is_dir():
        return False
    if card.exists():
        shutil.rmtree(card)  # what an interrupted evaluation left
    _copy_card(cached, card)
    return True


def store_cached(key: str, card: Path) -> None:
    """Copy a finished card into the cache, whole or not at all."""
    cached = installation.baselines_dir() / key
    draft = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=cached.parent))
    try:
        _copy_card(card, draft)
        draft.rename(cached)
    except OSError:
        if not cached.is_dir():  # else another trial has stored the same card meanwhile
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy_card(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except shutil.Error as error:
        _, _, reason = error.args[0][0]  # of the first file: the text of shutil.Error lists them all
        raise OSError(f"{target} cannot be written: {reason}") from error


def card_score(card: Path) -> Estimate:
    """The score of a finished card. Raises NotEnoughData if no item could be scored."""
    summary = read_summary(card)
    if summary.score is None:
        raise NotEnoughData(f"{card}: no item could be scored ({summary.n_missing} missing); see its drops manifest")
    return summary.score


def paired_gain(base_card: Path, final_card: Path) -> PairedDifference:
    """Final minus base on the items that both have a score for; the others are counted as missing."""
    return gain_of_items(read_summary(base_card).item_scores, read_summary(final_card).item_scores)


def gain_of_items(base: Mapping[str, float | None], final: Mapping[str, float | None]) -> PairedDifference:
    """Gain from two maps of item -> score. Raises NotEnoughData if no item has both scores."""
    pairs = [(base[key], final.get(key)) for key in base]
    scored = [(before, after) for before, after in pairs if before is not None and after is not None]
    difference = paired_difference(
        np.array([after for _, after in scored]),
        np.array([before for before, _ in scored]),
        np.random.default_rng(derive_seed("paired gain")),
    )
    return replace(difference, change=replace(difference.change, n_missing=len(pairs) - len(scored)))


def measure_noise(card: Path) -> NoiseBand:
    """The noise band from a card with several attempts of one checkpoint at each item.

    Covers item resampling and sampling seeds (items alone where the attempts are all alike, as under greedy
    decoding), not training seeds, whose spread sweeps report. Items with a missing attempt are left out.
    """
    rule = read_header(card).reporting
    by_item: dict[str, dict[int, float]] = {}
    for scored in iter_rollouts(card):
        value = counted_value(scored, rule)
        if value is not None:
            by_item.setdefault(scored.rollout.item_id, {})[scored.rollout.attempt] = value
    complete = [[values[a] for a in sorted(values)] for values in by_item.values() if len(values) == NOISE_REPLICATES]
    scores_RI = np.array(complete, dtype=float).T  # sampling seeds x items
    band = noise_band(scores_RI, np.random.default_rng(derive_seed("noise band")))
    return NoiseBand(half_width=band.half_width, n_replicates=band.n_replicates, over=band.over)


def choose_final(submissions: Sequence[SubmissionRecord], base: Estimate) -> SubmissionRecord | None:
    """The submission with the best public score; ties go to the earlier one, None if none beats the base."""
    better = [
        (s.score.value, -s.number, s)
        for s in submissions
        if s.state is SubmissionState.SCORED and s.score is not None and s.score.value > base.value
    ]
    return max(better)[2] if better else None
