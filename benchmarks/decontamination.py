"""Speed of the search for shared runs of 13 words, and which planted leaks are found.

    python benchmarks/decontamination.py [--mb 60] [--peer PYTHON] [--out FILE]

Speed: MB of text per second of processor time on one core, 1,000 items, 100 of them planted; beside a naive scan (every
run of every document looked up) and, with `--peer`, beside lm-eval's Janitor in a Python that has lm_eval (on a smaller
part of the same text, for it is slow). "from .jsonl" reads and decodes the file as the audit does.

Leaks: items of three kinds, as many never-planted ones and control items, among clean rows. Each line plants a share of
them in one way and says how many are found by runs, as whole short items, and by retrieval above every control item,
and how many items that were not planted are named.

Goal: at least 90 MB/s a core, and every verbatim leak found without a false name. Exit code 1 if missed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.integrity.leaks import (
    N_WORDS,
    LeakScan,
    LeakTargets,
    NgramIndex,
    exceedance,
    leak_targets,
)
from agent2.integrity.plain_text import normalized_words
from agent2.integrity.texts import ReadLimits, TextReading, TextUnit, read_units
from agent2.records import Item, Split

STRIDE = "stride lookup"
GOAL_MB_S = 90.0
N_ITEMS, N_PLANTED = 1000, 100
PEER_MB = 2.0
PEER = """
import json, sys, time
from lm_eval.decontamination.janitor import Janitor
given = json.load(open(sys.argv[1]))
janitor = Janitor()
begun = time.process_time()
for item in given["items"]:
    janitor.register_contaminant(item)
index_s = time.process_time() - begun
begun, found = time.process_time(), 0
for text in given["documents"]:
    found += len(janitor.clean_python(text)) != 1
print(json.dumps([time.process_time() - begun, found, index_s]))
"""


@dataclass(frozen=True)
class Speed:
    """One method."""

    method: str
    mb: float
    mb_per_s: float
    """Per second of processor time."""
    found: int
    """Planted items, or rows for the peer, that were found."""
    false: int | None
    """Items that were named and not planted; None: the method names none."""


@dataclass(frozen=True)
class Leak:
    """One way to plant items of one kind."""

    kind: str
    how: str
    planted: int
    by_runs: int
    by_whole: int
    by_retrieval: int
    together: int
    false: int
    """Not planted and named by runs or as a whole."""
    false_retrieval: int
    """Not planted and above every control item."""


class Prose:
    """Text whose words are as common as in language (Zipf)."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        letters = "eeeeetttaaaooiinnsshhrrddllcumwfgypbvk"
        lengths = (2, 3, 3, 4, 5, 5, 6, 7, 8, 9)
        words = {"".join(self.rng.choice(letters) for _ in range(self.rng.choice(lengths))) for _ in range(40_000)}
        self.words = sorted(words, key=lambda word: (len(word), word))
        self.weights = [1 / (rank + 10) for rank in range(len(self.words))]

    def text(self, n_words: int) -> str:
        """Sentences of twelve words."""
        words = self.rng.choices(self.words, self.weights, k=n_words)
        sentences = [" ".join(words[at : at + 12]).capitalize() for at in range(0, n_words, 12)]
        return ". ".join(sentences) + "."


def speeds(mb: float, peer: str | None) -> list[Speed]:
    """Every method on the same text."""
    prose = Prose(0)
    items = [prose.text(60) for _ in range(N_ITEMS)]
    documents: list[str] = []
    size = 0
    while size < mb * 1e6:
        documents.append(prose.text(400))
        size += len(documents[-1])
    for planted in range(N_PLANTED):
        documents[planted * (len(documents) // N_PLANTED)] += " " + items[planted]
    started = time.process_time()
    index = NgramIndex(items)
    aside = f"(index {time.process_time() - started:.1f} s not counted)"
    rows = [_timed(f"{STRIDE} {aside}", documents, lambda: _stride(index, documents))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        rows.append(_timed(f"{STRIDE}, from .jsonl", documents, lambda: _from_file(index, path)))
        part = documents[: max(1, len(documents) // 8)]
        rows.append(_timed("naive scan", part, lambda: _naive(items, part)))
        if peer is not None:
            rows.append(_peer(peer, items, documents, Path(folder)))
    return rows


def _timed(method: str, documents: Sequence[str], search: Callable[[], set[int]]) -> Speed:
    started = time.process_time()
    matches = search()
    seconds = time.process_time() - started
    mb = sum(map(len, documents)) / 1e6
    wrong = sum(item >= N_PLANTED for item in matches)
    return Speed(method, mb, mb / seconds, len(matches) - wrong, wrong)


def _stride(index: NgramIndex, documents: list[str]) -> set[int]:
    return {hit.item for text in documents for hit in index.search(text)}


def _from_file(index: NgramIndex, path: Path) -> set[int]:
    return {hit.item for unit in read_units(path, ReadLimits(), TextReading()) for hit in index.search(unit.text)}


def _naive(items: list[str], documents: list[str]) -> set[int]:
    runs: dict[bytes, set[int]] = {}
    for number, text in enumerate(items):
        for run in _runs(text):
            runs.setdefault(run, set()).add(number)
    return {item for text in documents for run in _runs(text) for item in runs.get(run, ())}


def _runs(text: str) -> list[bytes]:
    words = normalized_words(text)
    return [b" ".join(words[at : at + N_WORDS]) for at in range(len(words) - N_WORDS + 1)]


def _peer(peer: str, items: list[str], documents: list[str], folder: Path) -> Speed:
    part, size = [], 0
    for text in documents:
        part.append(text)
        size += len(text)
        if size > PEER_MB * 1e6:
            break
    input_file = folder / "peer.json"
    input_file.write_text(json.dumps({"items": items, "documents": part}))
    ended = subprocess.run([peer, "-c", PEER, str(input_file)], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{peer}: {ended.stderr.strip().splitlines()[-1]}")
    seconds, n_found, index_s = json.loads(ended.stdout.splitlines()[-1])
    return Speed(
        f"lm-eval Janitor (index {index_s:.1f} s not counted)", size / 1e6, size / 1e6 / seconds, n_found, None
    )


def _part(share: float) -> Callable[[str, Prose], str]:
    """A stretch of the item inside other text."""

    def plant(text: str, prose: Prose) -> str:
        words = text.split()
        n = max(1, round(share * len(words)))
        start = prose.rng.randrange(len(words) - n + 1)
        return f"{prose.text(24)} {' '.join(words[start : start + n])} {prose.text(24)}"

    return plant


def _reworded(share: float) -> Callable[[str, Prose], str]:
    """A share of the words replaced by others."""

    def plant(text: str, prose: Prose) -> str:
        return " ".join(prose.rng.choice(prose.words) if prose.rng.random() < share else w for w in text.split())

    return plant


PLANTS: dict[str, Callable[[str, Prose], str]] = {
    "nothing": lambda text, prose: "",
    "verbatim, a row of its own": lambda text, prose: text,
    "verbatim, between chat markers": lambda text, prose: f"<|user|>{text}<|assistant|>",
    "verbatim, inside other text": lambda text, prose: f"{prose.text(40)} {text} {prose.text(40)}",
    "other case and blanks": lambda text, prose: text.upper().replace(" ", "  "),
    **{f"part of {share:.0%}": _part(share) for share in (0.8, 0.6, 0.4, 0.2, 0.1)},
    **{f"{share:.0%} of words replaced": _reworded(share) for share in (0.05, 0.1, 0.2, 0.35, 0.5)},
}


def exams(n: int) -> dict[str, tuple[LeakTargets, list[str]]]:
    """Hidden and control items of each kind, and the clean rows among which some are planted."""
    prose = Prose(1)
    hidden, control = ([Item(f"prose-{i}-{n}", Split.DEV, prose.text(40)) for i in range(n)] for _ in range(2))
    targets_of = {"prose, 40 words": (leak_targets(hidden, control, []), [prose.text(60) for _ in range(3 * n)])}
    for kind, name in (("mini_math, 20 words", "mini_math"), ("arithmetic, 4 words", "arithmetic")):
        hidden_items, control_items = (_first(name, Split.TEST_PRIVATE, n, secret) for secret in (b"a" * 32, b"b" * 32))
        visible = [item.prompt for item in _first(name, Split.TRAIN, 3 * n, None)]
        targets_of[kind] = (leak_targets(hidden_items, control_items, visible), visible)
    return targets_of


def _first(name: str, split: Split, n: int, secret: bytes | None) -> list[Item]:
    """Items of a benchmark; fewer where there are no more."""
    try:
        return load_benchmark(name).items(split, n, secret)
    except ConfigError:
        return _first(name, split, n // 2, secret)


def leaks(n: int) -> list[Leak]:
    """Every kind planted in every way."""
    rows = []
    for kind, (targets, clean) in exams(n).items():
        n_planted = len(targets.hidden) // 5
        for how, plant in PLANTS.items():
            prose = Prose(2)
            planted = [plant(item.prompt, prose) for item in targets.hidden[:n_planted]]
            scan = LeakScan(targets)
            for number, text in enumerate([*clean, *planted]):
                if text:
                    scan.look(TextUnit(f"train.jsonl:{number}", text))
            rows.append(_leak(kind, how, scan, 0 if how == "nothing" else n_planted))
    return rows


def _leak(kind: str, how: str, scan: LeakScan, n_planted: int) -> Leak:
    n_hidden = len(scan.targets.hidden)
    runs = {overlap.item for overlap in scan.runs if overlap.item < n_hidden}
    whole = {overlap.item for overlap in scan.pieces if overlap.item < n_hidden}
    scores = [near.score for near in scan.nearest()]
    highest = max(scores[n_hidden:])
    above = {item for item, score in enumerate(scores[:n_hidden]) if score > highest}
    if len(above) != exceedance(scores[:n_hidden], scores[n_hidden:])[0]:
        raise RuntimeError("the table does not count what the audit counts")
    planted = set(range(n_planted))
    return Leak(
        kind,
        how,
        n_planted,
        len(runs & planted),
        len(whole & planted),
        len(above & planted),
        len((runs | whole | above) & planted),
        len((runs | whole) - planted),
        len(above - planted),
    )


def main() -> int:
    """Measure, print the tables, say whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=60.0, help="text for the speeds")
    parser.add_argument("--items", type=int, default=400, help="hidden items of each kind")
    parser.add_argument("--peer", help="a Python that has lm_eval")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    arguments = parser.parse_args()
    print(f"{'method':<46}{'MB':>7}{'MB/s':>9}{'found':>7}{'false':>7}")
    fast = speeds(arguments.mb, arguments.peer)
    for row in fast:
        false = "-" if row.false is None else str(row.false)
        print(f"{row.method:<46}{row.mb:>7.1f}{row.mb_per_s:>9.1f}{row.found:>7}{false:>7}")
    if arguments.peer is None:
        print("lm-eval's Janitor: not measured, no --peer was given")
    print(
        f"\n{'kind':<22}{'planted':<32}{'n':>4}{'runs':>6}{'whole':>7}{'retr.':>7}{'any':>5}{'false':>7}{'f.retr.':>9}"
    )
    leak_rows = leaks(arguments.items)
    for leak in leak_rows:
        line = f"{leak.kind:<22}{leak.how:<32}{leak.planted:>4}{leak.by_runs:>6}{leak.by_whole:>7}"
        print(line + f"{leak.by_retrieval:>7}{leak.together:>5}{leak.false:>7}{leak.false_retrieval:>9}")
    if arguments.out is not None:
        record = {"speeds": [asdict(row) for row in fast], "leaks": [asdict(leak) for leak in leak_rows]}
        arguments.out.write_text(json.dumps(record, indent=1))
        print(arguments.out)
    slow = [row for row in fast if row.method.startswith(f"{STRIDE} (") and row.mb_per_s < GOAL_MB_S]
    lost = [
        leak
        for leak in leak_rows
        if leak.how.startswith("verbatim, a row") and leak.by_runs + leak.by_whole < leak.planted
    ]
    for row in slow:
        print(f"missed: {row.method} {row.mb_per_s:.1f} MB/s, goal {GOAL_MB_S:g}")
    for leak in lost:
        print(f"missed: {leak.kind}, {leak.how}: {leak.by_runs + leak.by_whole} of {leak.planted}")
    return 1 if slow or lost else 0


if __name__ == "__main__":
    sys.exit(main())
