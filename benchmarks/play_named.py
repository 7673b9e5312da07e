"""The benchmarks that people quote, played here: every named row whose files are on this machine, a few items each.

    python benchmarks/play_named.py --checkpoint smollm2-135m [ROW ...] [--items 50] [--out named]
        [--checkpoint mmmu:FOLDER] [--set protocol.sampling.max_tokens=32] [--set alfworld:agent.budget.max_steps=3]

Without names all 40 rows of `agent2 benchmarks list --named` are tried. A row is played as `agent2 eval` plays it for a
first look: benchmark, prompts, world and scorer are its own, the items are the first by a public hash. They are of
dev, of test_public where dev has too few, or of the whole published set where both have. A row that cannot be played
is printed with the reason. The same command goes on where it was interrupted, and plays no finished row again.

Before a setting or a checkpoint, ROW: makes it hold for that row alone. Says nothing about where files come from: what
a variable names was put there by somebody, so state it beside the table.
"""

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2 import installation
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.data_files import OfficialFile
from agent2.benchmarks.home import ProvidesCount, ProvidesNamedSet
from agent2.benchmarks.named import PLAYED, NamedBenchmark, named_benchmarks
from agent2.benchmarks.named.packages import is_here
from agent2.benchmarks.named.setup import check_setup
from agent2.contract.suite import EvaluationRole
from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.evaluation.first_look import LookPart, LookRequest, play_first_look
from agent2.evaluation.suite_plan import open_contract, read_run_settings
from agent2.files import write_json
from agent2.models.bases import ensure_base_model
from agent2.models.sources import SCRIPTED, CheckpointSource, LoadSettings, find_checkpoint
from agent2.records import Benchmark, Split
from agent2.reports.look_report import look_rows
from agent2.stats.estimates import PERCENT

OVER_A_BRIDGE = {"tau2_bench": "tau2:retail"}
"""Rows of another status that a bridge plays here."""
ROLES = {EvaluationRole.DEV: Split.DEV, EvaluationRole.NIGHTLY: Split.TEST_PUBLIC}
WHOLE = "whole set"
COLUMNS = ("row", "status", "model", "items", "of", "score [95%]", "missing", "cut off", "seconds", "files")


@dataclass(frozen=True, slots=True)
class ChosenItems:
    """Where the items of a row are taken from."""

    role: EvaluationRole
    is_whole: bool
    n_items: int

    @property
    def words(self) -> str:
        """For the table."""
        return WHOLE if self.is_whole else ROLES[self.role].value


def choose_items(benchmark: Benchmark, n_wanted: int) -> ChosenItems:
    """The first of dev, test_public and the whole set with enough items, else the largest.

    Raises ConfigError, the last one, if none can be read.
    """
    problem: ConfigError | None = None
    choices = []
    secret = installation.secret()
    for role, split in ROLES.items():
        try:
            n_items = benchmark.count(split, secret) if isinstance(benchmark, ProvidesCount) else n_wanted
            choices.append(ChosenItems(role, False, n_items))
        except ConfigError as error:
            problem = error
    # what `run.whole=true` of `agent2 eval` takes; it logs that private items were read
    is_asked_once = benchmark.max_turns == 1 and not getattr(benchmark, "compares_answers", False)
    if (
        is_asked_once
        and isinstance(benchmark, ProvidesNamedSet)
        and all(choice.n_items < n_wanted for choice in choices)
    ):
        try:
            whole = benchmark.named_set(None, secret)
            choices.append(ChosenItems(EvaluationRole.DEV, True, len(whole.items)))
        except ConfigError as error:
            problem = problem or error
    if not choices:
        raise problem or ConfigError("there are no items")
    enough = [choice for choice in choices if choice.n_items >= n_wanted]
    return enough[0] if enough else max(choices, key=lambda choice: choice.n_items)


def of_row(texts: Iterable[str], row: str) -> list[str]:
    """Those for all rows and those for this one, without its name; the latter come last."""
    rows = named_benchmarks()
    parted = [(text.partition(":")[0], text) for text in texts]
    general = [text for name, text in parted if name not in rows]
    return general + [text.partition(":")[2] for name, text in parted if name == row]


def files_of(row: NamedBenchmark) -> str:
    """Where the files were found, as far as this machine can tell."""
    variable = OfficialFile(row.benchmark or row.name, (), "", {}).variable
    if os.environ.get(variable):
        return f"${variable}"
    return f"package {row.package.name} {row.package.version}" if row.package and is_here(row) else "found without"


def source_of(checkpoint: str, settings: LoadSettings) -> CheckpointSource:
    """The model of that name, built if it is a base model that is not here yet. Raises ConfigError."""
    if not checkpoint.startswith(SCRIPTED) and checkpoint in BASE_MODELS:
        checkpoint = str(ensure_base_model(checkpoint, BASE_MODELS, lambda message: print(message, flush=True)))
    return find_checkpoint(checkpoint, settings)


def play(row: NamedBenchmark, arguments: argparse.Namespace) -> dict[str, Any]:
    """Play a row, or find it played. Raises Agent2Error for one that cannot be played."""
    name = OVER_A_BRIDGE.get(row.name) or (row.benchmark if row.status in PLAYED else None)
    if name is None:
        raise ConfigError("; ".join(check_setup(row).missing) or f"its status is '{row.status}'")
    checkpoints = of_row(arguments.checkpoint, row.name)
    if not checkpoints:
        raise ConfigError("no --checkpoint is for this row")
    run, overrides = read_run_settings(of_row(arguments.set, row.name))
    benchmark = load_benchmark(name)
    chosen = choose_items(benchmark, arguments.items)
    suite = open_contract(name, overrides)
    settings = LoadSettings(
        dtype=run.dtype,
        max_in_flight=run.max_in_flight,
        context_length=suite.protocol.context_length,
        is_plain=run.plain,
    )
    source = source_of(checkpoints[-1], settings)
    request = LookRequest(
        (LookPart(suite, (source,)),), role=chosen.role, limit=arguments.items, is_whole=chosen.is_whole
    )
    folder = arguments.out / f"{row.name}-{request.digest[:8]}"
    record_file = folder.with_suffix(".json")
    if record_file.is_file():
        found: dict[str, Any] = json.loads(record_file.read_text(encoding="utf-8"))
        return found
    print(f"{row.name}: {min(arguments.items, chosen.n_items)} items of {chosen.words} ...", flush=True)
    started = time.perf_counter()
    (look,) = look_rows(play_first_look(request, folder, lambda *progress: None))
    record = {
        "row": row.name,
        "status": f"{row.status.value}, played by {name}" if row.name in OVER_A_BRIDGE else row.status.value,
        "model": source.name,
        "items": look.totals.n_items,
        "of": f"{chosen.n_items} of {chosen.words}",
        "score [95%]": PERCENT.estimate(look.totals.score),
        "missing": look.totals.n_missing,
        "cut off": f"{100 * look.cut_off.share:.0f}%",
        "seconds": round(time.perf_counter() - started),
        "files": files_of(row),
        "version": benchmark.version,
    }
    write_json(record_file, record)
    return record


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="named benchmarks; none: all 40")
    parser.add_argument("--checkpoint", action="append", required=True, metavar="[ROW:]MODEL")
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("named"))
    parser.add_argument("--set", action="append", default=[], metavar="[ROW:]KEY=VALUE", help="as for agent2 eval")
    arguments = parser.parse_args()
    known = named_benchmarks()
    if unknown := [name for name in arguments.rows if name not in known]:
        raise SystemExit(str(unknown_name("named benchmark", unknown[0], known, "ROW")))
    arguments.out.mkdir(parents=True, exist_ok=True)
    played, refused = [], []
    for name in arguments.rows or known:
        try:
            played.append(play(known[name], arguments))
        except Agent2Error as error:
            refused.append((name, known[name].status.value, " ".join(str(error).split())))
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for record in played:
        print(f"| {' | '.join(str(record[column]) for column in COLUMNS)} |")
    n_full = sum(record["items"] >= arguments.items and not record["missing"] for record in played)
    print(f"\nplayed: {len(played)}; with at least {arguments.items} items and a score on each: {n_full}")
    for name, status, reason in refused:
        print(f"not played: {name} ({status}): {reason}")


if __name__ == "__main__":
    main()
