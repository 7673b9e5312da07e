"""How far two readers of the same rollouts agree, class by class.

    python benchmarks/labelled_agreement.py            the rollouts of benchmarks/labelled/second_pass.jsonl

Prints the table of benchmarks/labelled/GUIDELINE.md. Kappa is Cohen's, with an interval that resamples rollouts;
attempts at one item aren't independent, so it is somewhat narrow.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import NotEnoughData
from agent2.stats.estimates import Estimate
from agent2.stats.quality import cohens_kappa

LABELLED = Path(__file__).with_name("labelled")
Labels = Mapping[tuple[str, str], frozenset[str]]
"""Source and rollout -> its classes."""


@dataclass(frozen=True)
class Agreement:
    """How often both readers, one or neither gave a class."""

    name: str
    n_both: int
    n_neither: int
    n_only_first: int
    n_only_second: int
    kappa: Estimate | None
    """None: both gave the class to all rollouts, or to none."""


def read_labels(path: Path) -> Labels:
    """The classes of each rollout of a file. Raises ValueError for a rollout that it has twice."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    labels = {(row["source"], row["rollout"]): frozenset(row["labels"]) for row in rows}
    if len(labels) < len(rows):
        raise ValueError(f"{path.name}: labels a rollout twice")
    return labels


def agreement(first: Labels, second: Labels) -> list[Agreement]:
    """The agreement on each class that either reader gave, over the rollouts of `second`, most frequent class first.

    Raises ValueError where the first reader did not label one of them.
    """
    if missing := sorted(set(second) - set(first)):
        raise ValueError(f"the first reader did not label {missing[0][0]} {missing[0][1]}")
    given = [name for key in second for name in sorted(first[key] | second[key])]
    rows = []
    for name in sorted(set(given), key=lambda name: (-given.count(name), name)):
        of_first = [name in first[key] for key in second]
        of_second = [name in labels for labels in second.values()]
        pairs = list(zip(of_first, of_second, strict=True))
        try:
            kappa = cohens_kappa(of_first, of_second)
        except NotEnoughData:
            kappa = None
        rows.append(
            Agreement(
                name,
                n_both=pairs.count((True, True)),
                n_neither=pairs.count((False, False)),
                n_only_first=pairs.count((True, False)),
                n_only_second=pairs.count((False, True)),
                kappa=kappa,
            )
        )
    return rows


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=Path, default=LABELLED / "rollouts.jsonl")
    parser.add_argument("--second", type=Path, default=LABELLED / "second_pass.jsonl")
    options = parser.parse_args()
    first, second = read_labels(options.first), read_labels(options.second)
    print("| class | both | neither | only first | only second | kappa |\n|---|---:|---:|---:|---:|---|")
    for row in agreement(first, second):
        kappa = "-" if row.kappa is None else f"{row.kappa.value:.2f}"
        if row.kappa is not None and row.kappa.low is not None:
            kappa += f" [{row.kappa.low:.2f}, {row.kappa.high:.2f}]"
        counts = f"{row.n_both} | {row.n_neither} | {row.n_only_first} | {row.n_only_second}"
        print(f"| `{row.name}` | {counts} | {kappa} |")
    n_same = sum(first[key] == labels for key, labels in second.items())
    print(f"{n_same} of {len(second)} rollouts have the same classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
