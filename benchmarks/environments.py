"""How fast worlds are played beside the engine that each is built on: turns per second, memory, time to index.

    python benchmarks/environments.py [--worlds shop ...] [--sizes 1000 100000] [--million] [--visits 200]

Worlds with a search engine (shop, search): for each size, in processes of their own, the index is made on disk, by the
world and by bare bm25s from the same words (that one in memory); then the world's expert plays visits on the
memory-mapped index, and every search that it made is repeated, by the world's store and by bare bm25s with as many
results on the same index. Times are CPU seconds, which other programs disturb less; memory is the peak of the process.
`--million` adds the largest size of each world.

    build s, bare s     to make the index: all that the world does, and bm25s alone from words that are already split
    search ms, ratio    of one search by the world's store; against bm25s alone. The goal is at most 1.5
    turns/s             of visits: searches, pages and the expert that reads them
    searching           share of the time of a visit that bare bm25s takes for its searches
    64 at once          whether 64 visits side by side end as one after the other

A world is one function that returns a `Bench` (`WORLDS`).

The household: the same random commands in 64 games on the bare TextWorld engine (12 of the games) and on ours, loading
included; then the world with its expert, one game after the other and 64 at once. Every observation is compared.
`benchmarks/household.py` has more. Exit code 1 if a goal is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

SEARCH_GOAL = 1.5
"""CPU time of a search against bare bm25s."""
N_AT_ONCE = 64
N_STOCK = 12
"""Games on the bare TextWorld engine, which is slow."""
N_REPEATS = 5
"""Of each search; the fastest round counts."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One episode of a world, with somebody who plays it."""

    world: Any
    begin: Callable[[], object]
    next_action: Callable[[], str]
    is_over: Callable[[], bool]
    verdict: Callable[[], object]
    """What is compared between ways to play."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured of one world at one size."""

    unit: str
    """What there are `size` of."""
    build: Callable[[], object]
    """Makes the index in the folder."""
    corpus_tokens: Callable[[], list[list[str]]]
    """Of each document, for bare bm25s."""
    visit: Callable[[int], Visit]
    """By its number; opens the index at the first call."""
    query_of: Callable[[str], str | None]
    """What an action searches for; None: it searches for nothing."""
    search: Callable[[str], object]
    """By the world's store."""
    engine: Callable[[], Any]
    """The bm25s index of the store."""
    split: Callable[[str], list[str]]
    """A query's words."""
    top: int
    """Results of a search that are looked for, by bare bm25s too."""


def shop(size: int, folder: Path) -> Bench:
    """The text shop with a generated catalogue."""
    import numpy as np

    from agent2.benchmarks.shop import GeneratedProducts, Shop, draw_shopping_task, read_instruction
    from agent2.environments.shop import ShopWorld, build_store, open_store, shopper_action, tokenize
    from agent2.records import Split

    benchmark, products = Shop(), GeneratedProducts(size)
    opened: list[Any] = []

    def store() -> Any:
        if not opened:
            opened.append(open_store(folder, products))
        return opened[0]

    def visit(number: int) -> Visit:
        errand = draw_shopping_task(np.random.default_rng(number), products)
        item = benchmark.item(errand, Split.TRAIN, None)
        world = ShopWorld(benchmark.settings, lambda name: store(), lambda chat: shopper_action(read_instruction, chat))
        return Visit(
            world,
            lambda: world.reset(item, 0),
            world.ask_expert,
            lambda: world.state()["order"] is not None or world.state()["n_turns"] >= world.max_turns,
            lambda: world.state()["order"],
        )

    def query_of(action: str) -> str | None:
        return action[len("search[") : -1] if action.startswith("search[") else None

    return Bench(
        unit="products",
        build=lambda: build_store(folder, products),
        corpus_tokens=lambda: [tokenize(products[number].text) for number in range(size)],
        visit=visit,
        query_of=query_of,
        search=lambda query: store().search(query),
        engine=lambda: store().engine,
        split=tokenize,
        top=50,
    )


def search(size: int, folder: Path) -> Bench:
    """The world of documents over one generated wiki, and questions that are solved on its pages."""
    import numpy as np

    from agent2.benchmarks.search import Search, item_of_question
    from agent2.benchmarks.search.questions import SearchQuestion, relation_chains, solve
    from agent2.benchmarks.search.wiki import PERSON, WikiSettings, kind_of, pages_of
    from agent2.environments.search.corpus import Corpus, tokenize
    from agent2.environments.search.world import SearchWorld
    from agent2.records import Item, Split

    wiki = WikiSettings(n_pages=size)
    n_people = size - 2 * (size // 5)
    opened: list[Any] = []
    chains = relation_chains(Search.questions.depths, is_list=False)

    def corpus() -> Corpus:
        if not opened:
            opened.append(Corpus.load(folder))
        return opened[0]

    @cache
    def item(number: int) -> Item:
        rng = np.random.default_rng(number)
        while True:
            first = corpus().document(int(rng.integers(n_people))).text.partition("\n")[0]
            kind = kind_of(first)
            assert kind is not None and kind[0] == PERSON
            home = first.rpartition(" from ")[2].rstrip(".")
            question = SearchQuestion(wiki, kind[1], home, chains[int(rng.integers(len(chains)))])
            if (solved := solve(question, corpus())) is not None:
                return item_of_question("bench", Split.TRAIN, solved)

    def visit(number: int) -> Visit:
        search_item, world = item(number), SearchWorld(lambda item: corpus(), Search.settings)
        return Visit(
            world,
            lambda: world.reset(search_item, 0),
            world.ask_expert,
            lambda: world.state()["answer"] is not None,
            lambda: (world.state()["answer"], world.state()["final"]["citations"]),
        )

    return Bench(
        unit="documents",
        build=lambda: Corpus.of(pages_of(wiki)).save(folder),
        corpus_tokens=lambda: [tokenize(f"{page.title} {page.text}") for page in pages_of(wiki)],
        visit=visit,
        query_of=lambda action: action[len("search[") : -1] if action.startswith("search[") else None,
        search=lambda query: corpus().search(query, Search.settings.k),
        engine=lambda: corpus().engine,
        split=tokenize,
        top=Search.settings.k,
    )


WORLDS: dict[str, tuple[Callable[[int, Path], Bench], Sequence[int], int]] = {
    "search": (search, (1_000, 50_000), 500_000),
    "shop": (shop, (1_000, 100_000), 1_000_000),
}
"""Name -> its function, sizes, and the size of `--million`."""
HOUSEHOLD = "household"
WITH_HOUSEHOLD = sorted([*WORLDS, HOUSEHOLD])


@dataclass(frozen=True, slots=True)
class Built:
    """Making an index."""

    cpu_s: float
    disk_mib: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Played:
    """Visits on an index, and their searches alone."""

    n_turns: int
    n_searches: int
    visits_cpu_s: float
    ours_ms: float
    """Of one search."""
    bare_ms: float
    is_same_at_once: bool
    peak_mib: float

    @property
    def ratio(self) -> float:
        """Of a search against bare bm25s."""
        return self.ours_ms / self.bare_ms

    @property
    def searching(self) -> float:
        """Share of the visits' time that bare bm25s takes for their searches."""
        return self.n_searches * self.bare_ms / 1000 / self.visits_cpu_s


def peak_mib() -> float:
    """Most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(bench: Bench, folder: Path) -> Built:
    """Make the index on disk."""
    started = time.process_time()
    bench.build()
    cpu_s = time.process_time() - started
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Built(cpu_s, size / 2**20, peak_mib())


def build_bare(bench: Bench, folder: Path) -> Built:
    """Index the same words with bm25s alone, in memory."""
    import bm25s

    corpus_tokens = bench.corpus_tokens()
    started = time.process_time()
    engine = bm25s.BM25(k1=0.9, b=0.4)
    engine.index(corpus_tokens, show_progress=False)
    return Built(time.process_time() - started, 0.0, peak_mib())


def play(bench: Bench, n_visits: int) -> Played:
    """Play visits one after the other, their searches again, and 64 side by side."""
    queries: list[str] = []
    n_turns, ends = 0, []
    _play_alone(bench.visit(0), bench.query_of, [])  # opens the index
    visits = [bench.visit(number) for number in range(n_visits)]
    started = time.process_time()
    for visit in visits:
        n_turns += _play_alone(visit, bench.query_of, queries)
        ends.append(visit.verdict())
    visits_cpu_s = time.process_time() - started
    engine, tokens = bench.engine(), [bench.split(query) for query in queries]
    k = min(bench.top, int(engine.scores["num_docs"]))
    ours = _fastest(lambda: [bench.search(query) for query in queries])
    bare = _fastest(lambda: [engine.retrieve([query], k=k, show_progress=False) for query in tokens])
    together = end_together([bench.visit(number) for number in range(min(N_AT_ONCE, n_visits))])
    is_same = together == ends[: len(together)]
    n = len(queries)
    return Played(n_turns, n, visits_cpu_s, 1000 * ours / n, 1000 * bare / n, is_same, peak_mib())


def end_together(visits: Sequence[Visit]) -> list[object]:
    """The verdicts of visits that are played side by side."""
    for visit in visits:
        visit.begin()
    while unfinished := [visit for visit in visits if not visit.is_over()]:
        for visit in unfinished:
            visit.world.act(visit.next_action())
    return [visit.verdict() for visit in visits]


def _play_alone(visit: Visit, query_of: Callable[[str], str | None], queries: list[str]) -> int:
    """Play one visit; its searches are appended to `queries`. Returns the turns."""
    visit.begin()
    n_turns = 0
    while not visit.is_over():
        action = visit.next_action()
        if (query := query_of(action)) is not None:
            queries.append(query)
        visit.world.act(action)
        n_turns += 1
    return n_turns


def _fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest round."""
    times = []
    for _ in range(N_REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def stage(name: str, world: str, size: int, folder: Path, n_visits: int) -> dict[str, Any]:
    """One part of the measurement in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, __file__, "--stage", name, "--worlds", world, "--sizes", str(size)]
    done = subprocess.run(
        [*command, "--folder", str(folder), "--visits", str(n_visits)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{world}, {size}, {name}: failed\n{done.stderr[-2000:]}")
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output


def run_stage(options: argparse.Namespace) -> None:
    """Print the record of one stage."""
    make, _, _ = WORLDS[options.worlds[0]]
    bench = make(options.sizes[0], options.folder)
    match options.stage:
        case "build":
            record: Any = build(bench, options.folder)
        case "bare":
            record = build_bare(bench, options.folder)
        case _:
            record = play(bench, options.visits)
    print(json.dumps(asdict(record)))


def measure(world: str, size: int, n_visits: int) -> bool:
    """Print the line of one size; whether its goals are met."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "index"
        built = Built(**stage("build", world, size, folder, n_visits))
        comparison = Played(**stage("play", world, size, folder, n_visits))
        bare = Built(**stage("bare", world, size, folder, n_visits))
    is_met = comparison.ratio <= SEARCH_GOAL and comparison.is_same_at_once
    print(
        f"{world:8}{size:>10,}{built.cpu_s:>9.1f}{bare.cpu_s:>8.1f}{built.peak_mib:>9.0f}{built.disk_mib:>8.1f}"
        f"{comparison.n_turns / comparison.visits_cpu_s:>9.0f}{comparison.peak_mib:>9.0f}{comparison.ours_ms:>11.3f}"
        f"{comparison.bare_ms:>9.3f}{comparison.ratio:>7.2f}{100 * comparison.searching:>10.0f}%"
        f"{'same' if comparison.is_same_at_once else 'DIFFERENT':>11}{'' if is_met else '   GOAL MISSED'}",
        flush=True,
    )
    return is_met


def household_visit(world: Any, item: Any) -> Visit:
    """A game with the world's own expert."""
    return Visit(
        world,
        lambda: world.reset(item, 0),
        world.ask_expert,
        lambda: world.state()["won"] or world.state()["n_turns"] >= world.max_turns,
        world.state,
    )


def measure_household() -> bool:
    """Print the line of the household; whether its goals are met."""
    from agent2.benchmarks.household import Household
    from agent2.environments.household.engine import Engine
    from agent2.environments.household.world import HouseholdWorld
    from agent2.records import Split
    from household import ENGINE_GOAL, StockEngine, random_walks, time_engine  # loads torch

    benchmark = Household()
    items = benchmark.items(Split.TRAIN, N_AT_ONCE, None)
    walks = random_walks(items)
    for engine in (stock := StockEngine(), ours := Engine()):
        time_engine("warm-up", engine, items[-1:], walks[-1:])
    bare = time_engine("bare", stock, items[:N_STOCK], walks[:N_STOCK])
    engine_time = time_engine("ours", ours, items, walks)

    def visits() -> list[Visit]:
        engine = Engine()
        return [household_visit(HouseholdWorld(benchmark.settings, engine), item) for item in items]

    alone, n_turns, started = visits(), 0, time.process_time()
    for visit in alone:
        n_turns += _play_alone(visit, lambda action: None, [])
    cpu_s = time.process_time() - started
    is_same = end_together(visits()) == [visit.verdict() for visit in alone]
    ratio = engine_time.turns_per_s / bare.turns_per_s
    is_met = ratio >= ENGINE_GOAL and is_same
    print(f"{'world':10}{'games':>6}{'turns/s':>9}{'engine':>9}{'bare':>7}{'ratio':>7}{'64 at once':>12}")
    print(
        f"{'household':10}{len(items):>6}{n_turns / cpu_s:>9.0f}{engine_time.turns_per_s:>9.0f}{bare.turns_per_s:>7.0f}"
        f"{ratio:>7.1f}{'same' if is_same else 'DIFFERENT':>12}{'' if is_met else '   GOAL MISSED'}",
        flush=True,
    )
    return is_met


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=WITH_HOUSEHOLD, default=WITH_HOUSEHOLD)
    parser.add_argument("--sizes", nargs="+", type=int, help="instead of each world's own")
    parser.add_argument("--million", action="store_true", help="the largest size too: minutes, and gigabytes of memory")
    parser.add_argument("--visits", type=int, default=200)
    parser.add_argument("--stage", choices=("build", "bare", "play"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.visits < 1 or min(options.sizes or [1]) < 1:
        parser.error("--visits and --sizes: give whole numbers of at least 1")
    if options.stage:
        run_stage(options)
        return
    searched, is_met = [world for world in options.worlds if world in WORLDS], True
    if searched:
        print(
            f"{'world':8}{'size':>10}{'build s':>9}{'bare s':>8}{'MiB peak':>9}{'MiB disk':>9}{'turns/s':>8}"
            f"{'MiB peak':>9}{'search ms':>11}{'bare ms':>9}{'ratio':>7}{'searching':>11}{'64 at once':>11}"
        )
    for world in searched:
        _, sizes, largest = WORLDS[world]
        for size in options.sizes or (*sizes, *([largest] if options.million else [])):
            is_met &= measure(world, size, options.visits)
    if HOUSEHOLD in options.worlds:
        is_met &= measure_household()
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
