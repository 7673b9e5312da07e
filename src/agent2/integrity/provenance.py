"""Is this checkpoint a child of the base model? Compared by content, tensor by tensor.

The statistic is the correlation r of a matrix with the base model's matrix of the same name (or, where names differ,
of the same shape that fits best). For two models of independent origin, whose matrices are rotated at random against
each other, r has mean 0 and variance exactly 1/n for n numbers, whatever the spectra are: the trace of A'QBP over
random rotations Q, P. Training moves weights away from where they were, but does not turn them: children keep r near
1. A matrix counts as kin from `least_correlation(n)` on; a checkpoint is a child if all are, foreign if fewer than
half are. `benchmarks/provenance.py` measures both sides; the figures are in docs/integrity.md.

Also seen: the base model itself in another dtype, sharding or naming, with a few numbers changed, scaled by a
constant, or with rows or columns in another order (their norms are the same numbers).

Does NOT see who trained a child: an instruction-tuned sibling, a merged stranger's adapter or a checkpoint of another
team that began at the same base is a child too. A model that was rearranged AND then trained looks foreign.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent2.errors import CheckpointError
from agent2.integrity.finding import Check, Effect, Finding, Proof, Severity, proof
from agent2.integrity.weights import Floats, float_names, read_floats
from agent2.models.checkpoint import CheckpointInfo

MIN_NUMBERS = 1024
"""Smaller matrices, and vectors (norm weights are near 1 in every model), say nothing about kinship."""
MIN_CORRELATION = 0.075
"""Between the measured sides of matrices in layers. Embeddings of one vocabulary resemble each other more: no single
matrix decides."""
MIN_DEVIATIONS = 9.0
"""Standard deviations of r under independent origin; matters for matrices under 14,400 numbers."""
NEAR_CORRELATION = 0.5
"""Median correlation below which a child is so distant that a person should look."""
FEW_NUMBERS = 64
"""Differences up to this many are no training."""
COPY_SHARE = 0.999
"""From this share of unchanged numbers on a person should look."""
SAME_NORMS = 4e-3
"""Largest relative distance between sorted norms of a rearranged copy; measured up to 1.2e-3 after rounding to
bfloat16, and from 0.03 on for foreign models."""
IN_PLACE = 0.99
"""From this correlation on, numbers stand where they stood: norms that agree then say nothing."""
ROUNDED = 3e-3
"""Largest part of a multiple that rounding to bfloat16 explains, as a share of its norm."""
SAMPLE = 65_536
"""Numbers of a tensor by which a renamed one is looked for."""


class Relation(StrEnum):
    """What a checkpoint is to the base model."""

    COPY = "copy"
    """The same numbers, up to rounding of a dtype and `FEW_NUMBERS` others."""
    REARRANGED = "rearranged copy"
    """The same numbers in another order, or times a constant."""
    NEAR_COPY = "near copy"
    """Fewer than one in a thousand numbers differ."""
    CHILD = "child"
    DISTANT = "distant child"
    """Kin, but further from the base than half of its norm would explain."""
    PARTLY = "partly foreign"
    """Some matrices are no kin of the base's."""
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class TensorDistance:
    """One matrix against the base's."""

    name: str
    """In the base model."""
    numbers: int
    correlation: float
    """-1 to 1; 1 also for a multiple."""
    moved: float
    """Norm of the difference / norm of the base's matrix."""
    is_kin: bool
    is_same: bool
    """No number differs, rounding aside."""
    is_rearranged: bool
    """Not the same in place, but a multiple, or rows and columns have the same norms up to one constant."""


@dataclass(frozen=True, slots=True)
class Kinship:
    """What a comparison found."""

    relation: Relation
    matrices: tuple[TensorDistance, ...]
    n_numbers: int
    """All that were compared, vectors included."""
    n_changed: int
    """Of these, how many are not the base's, rounding to the dtype of either side aside."""
    is_renamed: bool
    """Tensors carry other names than in the base model."""

    @property
    def kin_share(self) -> float:
        """Share of matrices that are kin of the base's, 0 to 1."""
        return sum(m.is_kin for m in self.matrices) / len(self.matrices) if self.matrices else 0.0

    @property
    def median_correlation(self) -> float:
        """Over matrices; NaN without any."""
        return float(np.median([m.correlation for m in self.matrices])) if self.matrices else math.nan

    @property
    def lowest(self) -> float:
        """Smallest correlation of a matrix; NaN without any."""
        return min((m.correlation for m in self.matrices), default=math.nan)

    @property
    def moved(self) -> float:
        """Median relative distance of a matrix; NaN without any."""
        return float(np.median([m.moved for m in self.matrices])) if self.matrices else math.nan


def least_correlation(numbers: int) -> float:
    """From which correlation on a matrix of so many numbers is kin of the base's."""
    return max(MIN_CORRELATION, MIN_DEVIATIONS / math.sqrt(numbers))


def kinship(candidate: CheckpointInfo, base: CheckpointInfo) -> Kinship:
    """Compare a whole model with the base model.

    Reads both once, one tensor at a time. Raises CheckpointError if there is nothing to compare: an adapter (merge it
    before, `adapters.as_played`), no tensor of the same shape, numbers of a kind that is not played.
    """
    if candidate.is_adapter:
        raise CheckpointError(f"{candidate.path}: holds an adapter; merge it into the base model before comparing")
    matrices: list[TensorDistance] = []
    n_numbers = n_changed = 0
    is_renamed = False
    for name, own_name, after in _pairs(candidate, base):
        before = read_floats(base, name)
        if before.shape != after.shape:
            continue
        is_renamed |= own_name != name
        changed = _n_changed(after, before)
        n_numbers += before.size
        n_changed += changed
        if before.ndim == 2 and before.size >= MIN_NUMBERS:
            matrices.append(_distance(name, after, before, is_same=not changed))
    if not n_numbers or not matrices:
        raise CheckpointError(
            f"{candidate.path}: holds no matrix of {MIN_NUMBERS} numbers or more with the shape of one of the base's"
        )
    relation = _relation(matrices, n_numbers, n_changed)
    return Kinship(relation, tuple(matrices), n_numbers, n_changed, is_renamed)


def provenance_check(candidate: CheckpointInfo, base: CheckpointInfo, subject: str) -> Check:
    """The finding on one checkpoint, if there is one. subject: "submission 3".

    A checkpoint that cannot be compared is not cleared.
    """
    name = "provenance"
    try:
        found = kinship(candidate, base)
    except CheckpointError as error:
        words = f"where its weights come from could not be checked: {str(error).replace(str(candidate.path), subject)}"
        finding = Finding("provenance not checked", Severity.MEDIUM, Effect.UNCLEARED, words, (), subject)
        return Check(name, f"{subject}: not compared", (finding,), is_complete=False)
    looked = (
        f"{subject}: {len(found.matrices)} matrices and {found.n_numbers} numbers against the base model; median "
        f"correlation {found.median_correlation:.4f}, lowest {found.lowest:.4f}, relative change {found.moved:.3g}"
    )
    finding_of = _FINDINGS.get(found.relation)
    if finding_of is None:
        return Check(name, looked)
    title, severity, effect, words = finding_of
    sentence = words.format(
        kin=sum(m.is_kin for m in found.matrices),
        n=len(found.matrices),
        median=found.median_correlation,
        changed=found.n_changed,
        numbers=found.n_numbers,
    )
    return Check(name, looked, (Finding(title, severity, effect, sentence, _proofs(found), subject),))


_FINDINGS: Mapping[Relation, tuple[str, Severity, Effect, str]] = {
    Relation.FOREIGN: (
        "foreign weights",
        Severity.HIGH,
        Effect.VOID,
        "the checkpoint is no child of the base model: {kin} of {n} matrices are kin of the base's (median "
        "correlation {median:.3f})",
    ),
    Relation.PARTLY: (
        "partly foreign weights",
        Severity.MEDIUM,
        Effect.FLAG,
        "only {kin} of {n} matrices are kin of the base's: others were made anew or come from another model",
    ),
    Relation.DISTANT: (
        "distant weights",
        Severity.MEDIUM,
        Effect.FLAG,
        "the checkpoint is far from the base model: median correlation {median:.3f} over {n} matrices, where training "
        "keeps it above 0.5; it diverged, or another model is mixed in",
    ),
    Relation.COPY: (
        "copy of the base",
        Severity.MEDIUM,
        Effect.VOID,
        "the checkpoint is the base model in another form: {changed} of {numbers} numbers differ, rounding aside",
    ),
    Relation.REARRANGED: (
        "rearranged copy of the base",
        Severity.HIGH,
        Effect.VOID,
        "the checkpoint is the base model with its numbers rearranged or scaled: the norms of rows and columns of all "
        "{n} matrices are the base's",
    ),
    Relation.NEAR_COPY: (
        "near copy of the base",
        Severity.LOW,
        Effect.FLAG,
        "the checkpoint differs from the base model in {changed} of {numbers} numbers only",
    ),
}


def _proofs(found: Kinship) -> tuple[Proof, ...]:
    """The matrices that are furthest from the base's."""
    worst = sorted(found.matrices, key=lambda m: m.correlation)[:5]
    return tuple(
        proof(
            m.name,
            f"correlation {m.correlation:.4f} over {m.numbers} numbers, kin from "
            f"{least_correlation(m.numbers):.3f} on; relative change {m.moved:.3g}",
        )
        for m in worst
    )


def _relation(matrices: Sequence[TensorDistance], n_numbers: int, n_changed: int) -> Relation:
    if n_changed <= min(FEW_NUMBERS, n_numbers // 100):
        return Relation.COPY
    if all(m.is_rearranged or m.is_same for m in matrices) and any(m.is_rearranged for m in matrices):
        return Relation.REARRANGED
    if n_changed < (1 - COPY_SHARE) * n_numbers:
        return Relation.NEAR_COPY
    kin = sum(m.is_kin for m in matrices)
    if kin < len(matrices):
        return Relation.PARTLY if kin >= len(matrices) / 2 else Relation.FOREIGN
    is_near = float(np.median([m.correlation for m in matrices])) >= NEAR_CORRELATION
    return Relation.CHILD if is_near else Relation.DISTANT


def _pairs(candidate: CheckpointInfo, base: CheckpointInfo) -> Iterator[tuple[str, str, Floats]]:
    """(name in the base, name in the candidate, its numbers)."""
    for name, own_name in _names(candidate, base).items():
        yield name, own_name, read_floats(candidate, own_name)


def _names(candidate: CheckpointInfo, base: CheckpointInfo) -> dict[str, str]:
    """Name in the base -> name in the candidate; by name, and what is left over by shape and content."""
    own, wanted = float_names(candidate), float_names(base)
    names = {name: name for name in wanted if name in candidate.tensors}
    left = [name for name in wanted if name not in names]
    free = [name for name in own if name not in names]
    for name in left:
        shape = base.tensors[name].shape
        fitting = [other for other in free if candidate.tensors[other].shape == shape]
        if fitting:
            sample = _sample(base, name)
            names[name] = max(fitting, key=lambda other: _correlation(_sample(candidate, other), sample))
            free.remove(names[name])
    return names


def _sample(info: CheckpointInfo, name: str) -> Floats:
    return read_floats(info, name).reshape(-1)[:SAMPLE]


def _distance(name: str, after: Floats, before: Floats, *, is_same: bool) -> TensorDistance:
    correlation = _correlation(after.reshape(-1), before.reshape(-1))
    norm = float(np.linalg.norm(before))
    moved = float(np.linalg.norm(after - before)) / norm if norm else math.inf
    return TensorDistance(
        name,
        before.size,
        correlation,
        moved,
        is_kin=correlation >= least_correlation(before.size),
        is_same=is_same,
        is_rearranged=not is_same and _is_rearranged(after, before, correlation),
    )


def _correlation(after: Floats, before: Floats) -> float:
    """Pearson's r; 0 where one side is constant or not finite."""
    a = after.astype(np.float64) - after.mean(dtype=np.float64)
    b = before.astype(np.float64) - before.mean(dtype=np.float64)
    scale = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    r = float(a @ b) / scale if scale else 0.0
    return r if math.isfinite(r) else 0.0


def _n_changed(after: Floats, before: Floats) -> int:
    """Numbers that differ under every rounding that one side shows: all its numbers fit a 16-bit type."""
    different = after != before
    for rounded in (_bfloat16, _float16):
        own, expected = rounded(after), rounded(before)
        if np.array_equal(own, after) or np.array_equal(expected, before):
            different &= own != expected
    return int(np.count_nonzero(different))


def _bfloat16(numbers: Floats) -> Floats:
    """Each number rounded to the nearest that bfloat16 holds, ties to even."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    upper = np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000, dtype=np.uint32)
    return upper.view(np.float32)


def _float16(numbers: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).astype(np.float32)


def _is_rearranged(after: Floats, before: Floats, correlation: float) -> bool:
    """Whether one is a multiple of the other, or has the same norms of rows and columns up to one constant."""
    if correlation < IN_PLACE:
        return all(_sorted_norm_distance(after, before, axis) < SAME_NORMS for axis in (0, 1))
    scale = float(np.vdot(after, before)) / float(np.vdot(before, before))
    left_over = float(np.linalg.norm(after - np.float32(scale) * before)) / float(np.linalg.norm(after))
    return left_over < ROUNDED < abs(scale - 1)


def _sorted_norm_distance(after: Floats, before: Floats, axis: int) -> float:
    own, expected = (np.sort(np.linalg.norm(numbers, axis=axis)) for numbers in (after, before))
    own_scale, scale = float(np.linalg.norm(own)), float(np.linalg.norm(expected))
    if not own_scale or not scale or not math.isfinite(own_scale):
        return math.inf
    return float(np.max(np.abs(own / own_scale - expected / scale)) * math.sqrt(own.size))
