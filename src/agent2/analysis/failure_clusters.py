"""Failures of which nobody says why, grouped by what they read like and named by their terms.

TF-IDF of question and answer with scikit-learn, or sentence embeddings where a caller has them, k-means, and the number
of clusters with the best silhouette. Failures without any class are clustered, and those whose classes all say that
they failed, not why. A cluster is nobody's judgement: it says which failures to read together. Hidden items are never
clustered, since terms would give their texts away.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent2.analysis.card_scores import final_answer
from agent2.analysis.failures import EXAMPLES, FailedRollout, FailureReport
from agent2.cards.comparability import CHECKPOINT, find_cards
from agent2.cards.reader import finished_header, iter_rollouts
from agent2.installation import install_hint
from agent2.records import HIDDEN_SPLITS, ScoredRollout

MAX_FAILURES = 5_000
"""More are sampled; a cluster's share is of those."""
MAX_CLUSTERS = 8
MIN_FAILURES = 6
"""Fewer can be read one by one."""
MAX_CHARACTERS = 2_000
N_TERMS = 4
SEED = 0
TFIDF, EMBEDDINGS = "TF-IDF", "sentence embeddings (minilm)"
MAX_ENCODED = 500
"""Failures that are clustered by sentence embeddings, of which one core encodes about 55 a second."""
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts -> unit vectors."""
NEEDS_SKLEARN = f"clusters need scikit-learn, which is not installed; {install_hint('clusters')}"


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """Failures that read alike."""

    terms: tuple[str, ...]
    """What sets them apart from the others, the strongest first."""
    n: int
    share: float
    """Of the clustered failures."""
    examples: tuple[FailedRollout, ...]
    """Those nearest to its centre."""

    @property
    def name(self) -> str:
        """The terms in one line."""
        return ", ".join(self.terms) or "nothing in common"


@dataclass(frozen=True, slots=True)
class FailureClusters:
    """The clusters of one checkpoint's open failures."""

    n_open: int
    """Failures of which nobody says why."""
    n_clustered: int
    clusters: tuple[FailureCluster, ...]
    """The largest first."""
    by: str = TFIDF
    """What likeness is measured with."""
    note: str = ""
    """Why there are none, or of how many; empty: all were clustered."""


def open_failures(report: FailureReport) -> list[FailedRollout]:
    """Failures of which nobody says why: without a class, or with generic ones alone."""
    generic = {failure_class.label for failure_class in report.classes if failure_class.is_generic}
    return [failure for failure in report.failures if generic.issuperset(failure.classes)]


def clusters_of(
    folder: Path,
    report: FailureReport,
    seed: int = SEED,
    max_failures: int = MAX_FAILURES,
    encode: Encode | None = None,
) -> FailureClusters:
    """Cluster the open failures of an evaluation's checkpoint, or of the cards in a folder.

    encode: sentence embeddings, in place of TF-IDF; at most `MAX_ENCODED` failures then.
    """
    failures = open_failures(report)
    if len(failures) < MIN_FAILURES:
        return FailureClusters(
            len(failures), 0, (), note=f"{len(failures)} failures without a cause: read them one by one"
        )
    rng = np.random.default_rng(seed)
    n_drawn = min(max_failures, len(failures), len(failures) if encode is None else MAX_ENCODED)
    sample = [failures[place] for place in sorted(rng.choice(len(failures), n_drawn, replace=False))]
    texts = _texts(folder, sample)
    if not texts:
        note = "the items are hidden, and terms would give their texts away"
        return FailureClusters(len(failures), 0, (), note=note)
    clustered = [failure for failure in sample if _key(failure) in texts]
    clusters, note = _clustered(clustered, [texts[_key(failure)] for failure in clustered], seed, encode)
    if not note and len(clustered) < len(failures):
        limits = [f"drawn with seed {seed}"] if len(sample) < len(failures) else []
        limits += ["hidden items left out"] if len(clustered) < len(sample) else []
        note = f"{len(clustered)} of {len(failures)} failures without a cause, {', '.join(limits)}"
    by = TFIDF if encode is None else EMBEDDINGS
    return FailureClusters(len(failures), len(clustered) if clusters else 0, clusters, by, note)


def _key(failure: FailedRollout) -> tuple[str, str, int]:
    return failure.benchmark, failure.item_id, failure.attempt


def _texts(folder: Path, failures: Iterable[FailedRollout]) -> dict[tuple[str, str, int], str]:
    """Question and answer of the visible ones among the failures."""
    keys = {_key(failure) for failure in failures}
    texts = {}
    for path in find_cards(folder, CHECKPOINT).cards.values():
        header = finished_header(path)
        if header.protocol.split in HIDDEN_SPLITS:
            continue
        benchmark = header.protocol.benchmark_name
        for record in iter_rollouts(path):
            key = (benchmark, record.rollout.item_id, record.rollout.attempt)
            if key in keys:
                texts[key] = _text(record)
    return texts


def _text(record: ScoredRollout) -> str:
    question = record.rollout.prompt[-1].text if record.rollout.prompt else ""
    return f"{question[-MAX_CHARACTERS:]}\n{final_answer(record)[:MAX_CHARACTERS]}"


def _clustered(
    failures: Sequence[FailedRollout], texts: Sequence[str], seed: int, encode: Encode | None
) -> tuple[tuple[FailureCluster, ...], str]:
    try:
        from sklearn.cluster import KMeans
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.metrics import silhouette_score
    except ImportError:
        return (), NEEDS_SKLEARN
    vectorizer = TfidfVectorizer(
        stop_words="english", max_features=5_000, min_df=2, max_df=0.9, token_pattern=r"(?u)\b[^\W\d_]{3,}\b"
    )
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # nothing is left of the vocabulary
        return (), "the failures have no words in common"
    points: Any = vectors if encode is None else np.asarray(encode(texts), dtype=np.float64)
    distinct_rows = {
        vectors.indices[start:end].tobytes() + vectors.data[start:end].tobytes()
        for start, end in pairwise(vectors.indptr.tolist())
    }
    best_labels: Any = None
    best_centres: Any = None
    best_quality = -1.0
    for n_clusters in range(2, min(MAX_CLUSTERS, len(texts) - 1, len(distinct_rows)) + 1):
        model = KMeans(n_clusters, n_init=3, random_state=seed).fit(points)
        quality = silhouette_score(points, model.labels_, sample_size=min(1_000, len(texts)), random_state=seed)
        if quality > best_quality:
            best_labels, best_centres, best_quality = model.labels_, model.cluster_centers_, quality
    if best_labels is None:
        return (), "the failures all read alike"
    terms, mean = vectorizer.get_feature_names_out(), np.asarray(vectors.mean(axis=0)).ravel()
    clusters = []
    for number in range(len(best_centres)):
        members = np.flatnonzero(best_labels == number)
        if not members.size:
            continue
        distinct = np.asarray(vectors[members].mean(axis=0)).ravel() - mean
        strongest = [str(terms[place]) for place in np.argsort(-distinct)[:N_TERMS] if distinct[place] > 0]
        nearest = members[np.argsort(-np.asarray(points[members] @ best_centres[number]).ravel(), kind="stable")]
        clusters.append(
            FailureCluster(
                tuple(strongest),
                int(members.size),
                members.size / len(texts),
                tuple(failures[place] for place in nearest[:EXAMPLES]),
            )
        )
    return tuple(sorted(clusters, key=lambda cluster: (-cluster.n, cluster.terms))), ""
