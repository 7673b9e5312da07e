"""The benchmarks that people quote, played here: every named row whose files are on this machine, a few items each.

    python benchmarks/play_named.py --checkpoint smollm2-135m [ROW ...] [--items 50] [--out named]
        [--checkpoint mmmu:FOLDER] [--set protocol.sampling.max_tokens=32] [--turns 3]

Without names all 41 rows of `agent2 benchmarks list --named` are tried; names behind a bridge, as
`reasoning_gym:leg_counting`, are played as rows of their own. A row is played as `agent2 eval` plays it for a first
look: benchmark, prompts, world and scorer are its own, the items are the first by a public hash. They are of dev, of
test_public where dev has too few, or of the whole published set where both have. A row that cannot be played is printed
with the reason. The same command goes on where it was interrupted, and plays no finished row again.

Before a setting or a checkpoint, ROW: makes it hold for that row alone. Says nothing about where files come from: what
a variable names was put there by somebody, so state it beside the table.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2 import installation
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.bridges import find_bridge, split_bridged
from agent2.benchmarks.data_files import OfficialFile
from agent2.benchmarks.home import ProvidesCount, ProvidesNamedSet
from agent2.benchmarks.named import PLAYED, NamedBenchmark, named_benchmarks
from agent2.benchmarks.named.packages import is_here
from agent2.benchmarks.named.setup import check_setup
from agent2.contract.suite import (
    AgentBudget,
    AgentContract,
    EvaluationRole,
    InitialEnvironment,
    SuccessCriterion,
    Suite,
    TrajectoryAudit,
)
from agent2.engines.environments import installed_environment
from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.evaluation.first_look import LookPart, LookRequest, play_first_look
from agent2.evaluation.suite_plan import open_contract, read_run_settings
from agent2.files import write_json
from agent2.models.bases import ensure_base_model
from agent2.models.sources import SCRIPTED, CheckpointSource, LoadSettings, find_checkpoint
from agent2.records import Benchmark, Split
from agent2.reports.look_report import look_rows
from agent2.stats.estimates import PERCENT

OVER_A_BRIDGE = {"tau2_bench": ("tau2:retail", "tau2:telecom")}
"""Rows of another status that bridges play here, in parts with a line each."""
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


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the table: a row, one of its parts, or a name behind a bridge."""

    row: str
    """A named benchmark, or the name behind the bridge."""
    benchmark: str
    status: str
    files: str
    """Where the items come from, as far as this machine can tell."""


def parts_of(name: str) -> list[Part]:
    """What is played for a row, or for a name behind a bridge. Raises ConfigError where nothing plays it."""
    if (bridged := split_bridged(name)) is not None:
        return [Part(name, name, f"bridge {bridged[0]}", files_over(bridged[0]))]
    row = named_benchmarks()[name]
    if row.name in OVER_A_BRIDGE:
        names = OVER_A_BRIDGE[row.name]
        return [Part(name, played, f"{row.status.value}, {played}", files_over("tau2")) for played in names]
    if row.status not in PLAYED or row.benchmark is None:
        raise ConfigError("; ".join(check_setup(row).missing) or f"its status is '{row.status}'")
    return [Part(name, row.benchmark, row.status.value, files_of(row))]


def files_over(bridge: str) -> str:
    """The package behind a bridge, with its version where it is installed."""
    found = find_bridge(bridge, bridge)
    environment = installed_environment(found.pinned)
    version = "(not installed)" if environment is None else environment.version
    return f"package {found.distribution} {version}"


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


def with_turns(suite: Suite, n_turns: int) -> Suite:
    """The suite of a benchmark with episodes that end after so many messages of the model."""
    contract = AgentContract(
        initial_environment=InitialEnvironment(kinds=["api"], reproduction="each item begins afresh"),
        success_criteria=[SuccessCriterion.STATE_DIFF],
        budget=AgentBudget(max_steps=n_turns, max_minutes=None, max_tokens=None, max_tool_calls=None),
        trajectory_audit=TrajectoryAudit(observation=True, action=True, tool_result=True, error_recovery=True),
    )
    return suite.model_copy(update={"agent": contract})


def play(part: Part, arguments: argparse.Namespace) -> dict[str, Any]:
    """Play one line, or find it played. Raises Agent2Error for what cannot be played."""
    checkpoints = of_row(arguments.checkpoint, part.row)
    if not checkpoints:
        raise ConfigError("no --checkpoint is for this row")
    run, overrides = read_run_settings(of_row(arguments.set, part.row))
    benchmark = load_benchmark(part.benchmark)
    chosen = choose_items(benchmark, arguments.items)
    suite = open_contract(part.benchmark, overrides)
    if arguments.turns is not None and benchmark.max_turns > 1:
        suite = with_turns(suite, arguments.turns)
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
    folder = arguments.out / f"{re.sub(r'[^A-Za-z0-9_-]+', '.', part.row)}-{request.digest[:8]}"
    record_file = folder.with_suffix(".json")
    if record_file.is_file():
        found: dict[str, Any] = json.loads(record_file.read_text(encoding="utf-8"))
        return found
    print(f"{part.benchmark}: {min(arguments.items, chosen.n_items)} items of {chosen.words} ...", flush=True)
    started = time.perf_counter()
    (look,) = look_rows(play_first_look(request, folder, lambda *progress: None))
    record = {
        "row": part.row,
        "status": part.status,
        "model": source.name,
        "items": look.totals.n_items,
        "of": f"{chosen.n_items} of {chosen.words}",
        "score [95%]": PERCENT.estimate(look.totals.score),
        "missing": look.totals.n_missing,
        "cut off": f"{100 * look.cut_off.share:.0f}%",
        "seconds": round(time.perf_counter() - started),
        "files": part.files,
        "version": benchmark.version,
    }
    write_json(record_file, record)
    return record


def n_with_enough(records: Iterable[dict[str, Any]], n_items: int) -> int:
    """Rows whose lines have together that many items, and a score on each."""
    by_row: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_row.setdefault(record["row"], []).append(record)
    return sum(
        sum(record["items"] for record in lines) >= n_items and not any(record["missing"] for record in lines)
        for lines in by_row.values()
    )


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="named benchmarks, or BRIDGE:NAME; none: all 41")
    parser.add_argument("--checkpoint", action="append", required=True, metavar="[ROW:]MODEL")
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("named"))
    parser.add_argument("--turns", type=int, default=None, help="most messages of the model in an episode")
    parser.add_argument("--set", action="append", default=[], metavar="[ROW:]KEY=VALUE", help="as for agent2 eval")
    arguments = parser.parse_args()
    known = named_benchmarks()
    if unknown := [name for name in arguments.rows if name not in known and split_bridged(name) is None]:
        raise SystemExit(str(unknown_name("named benchmark", unknown[0], known, "ROW")))
    arguments.out.mkdir(parents=True, exist_ok=True)
    played, refused = [], []
    for name in arguments.rows or known:
        status = known[name].status.value if name in known else "bridge"
        try:
            for part in parts_of(name):
                played.append(play(part, arguments))
        except Agent2Error as error:
            refused.append((name, status, " ".join(str(error).split())))
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for record in played:
        print(f"| {' | '.join(str(record[column]) for column in COLUMNS)} |")
    n_rows = len({record["row"] for record in played})
    n_full = n_with_enough(played, arguments.items)
    print(f"\nplayed: {n_rows}; with at least {arguments.items} items and a score on each: {n_full}")
    for name, status, reason in refused:
        print(f"not played: {name} ({status}): {reason}")


if __name__ == "__main__":
    main()
