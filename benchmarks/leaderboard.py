"""Do rank intervals and tiers of the leaderboard cover the truth? Simulated sweeps with known true scores.

    python benchmarks/leaderboard.py [--sweeps 1000] [--stacks 8] [--runs 5] [--items 100] [--boards 20]
    python benchmarks/leaderboard.py --failed 0.3         # trials fail: intention to treat, and the rule before
    python benchmarks/leaderboard.py --write DIR          # one such sweep as folders of trials, for agent2 leaderboard

A sweep has five tasks, three static and two interactive: 200 trials with 8 stacks and 5 runs. Every stack has a true
score on each task, some of them equal. A run draws a luck of its own (standard deviation 0.04 of a score), items are of
different difficulty and suit stacks differently, and every verdict is drawn from the chance that results. A board (of
one task, or of all tasks of a kind) is covered when all rank intervals contain all true ranks (of equal stacks: all the
ranks that they share) and no tier claims more levels above a stack than there are.

With `--failed 0.3` three trials in ten fail. Half of them are the infrastructure's fault, for every stack alike, and
missing. The others are the agent's, of some stacks more often than of others (twice the mean for the worst, none for
the best), and count with the base model's score; the true score of a stack is its mean over trials that the
infrastructure did not lose. The same sweeps are ranked by the earlier rule, too, which left out every failed trial.

Prints the shares covered; exits 1 if one of them is below 95%. Places are computed as the leaderboard does it; of the
first sweeps (`--boards`) they are held against those of `make_leaderboard` itself. `--write` writes trials with cards,
reads them back as `agent2 leaderboard` does, and exits 1 unless all are verified and the board is the simulated one.
"""

import sys

sys.path.pop(0)  # this folder: its file names must not hide the standard library's

import argparse
import hashlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent2.arena.analysis.leaderboard import Leaderboard, make_leaderboard
from agent2.arena.analysis.pool import read_pool
from agent2.arena.analysis.pooled import LeaderboardTrial, PooledTrial, TrialConditions
from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.arena.scoring import NOISE_REPLICATES, card_score, measure_noise, paired_gain
from agent2.arena.spec import Level, TrialConfig, config_digest
from agent2.arena.sweep_records import SweepRow
from agent2.arena.tasks import load_task
from agent2.arena.trial_folder import TrialPaths
from agent2.cards.card import CardHeader, ReportingRule
from agent2.cards.writer import CardWriter
from agent2.integrity import IntegrityCheck, IntegrityRecord
from agent2.records import (
    EvaluationProtocol,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoredRollout,
    Split,
    StopReason,
    Turn,
    Usage,
    digest_of,
)
from agent2.stats.estimates import Estimate
from agent2.stats.ranking import RankInterval, difference_of_samples, mean_difference, rank_intervals

RUN_SD = 0.04
FIT_SD = 0.08
"""How much more or less a stack suits an item than its score says."""
LEVELS = (0.35, 0.35, 0.40, 0.45, 0.45, 0.55, 0.60, 0.60)
"""True scores that stacks take in turn on the first task, and rotated on the others; equal ones are true ties."""
BASE = 0.3
TASKS = ("static-1", "static-2", "static-3", "interactive-1", "interactive-2")
KINDS = (TASKS[:3], TASKS[3:])
Boards = dict[str, list[RankInterval]]
"""Name of a task, or `static` or `interactive` for all of a kind -> the place of each stack."""


@dataclass(frozen=True, slots=True)
class SimulatedSweep:
    """Verdicts of all stacks, and what is true of them."""

    truth_KT: NDArray[np.float64]
    verdicts_KTRI: NDArray[np.float64]
    base_TAI: NDArray[np.float64]
    """Of the base model: attempts x items; the first attempt is its score, all of them are the noise band."""


def simulate(rng: np.random.Generator, n_stacks: int, n_runs: int, n_items: int) -> SimulatedSweep:
    """One sweep. truth_KT: the mean over new items and runs, by simulation of its parts exact."""
    truth = np.array([np.roll(np.resize(np.array(LEVELS), n_stacks), 2 * at) for at in range(len(TASKS))]).T
    difficulty = rng.uniform(-0.2, 0.2, size=(1, len(TASKS), 1, n_items))
    fit = rng.normal(0.0, FIT_SD, size=(n_stacks, len(TASKS), 1, n_items))
    luck = rng.normal(0.0, RUN_SD, size=(n_stacks, len(TASKS), n_runs, 1))
    chance = truth[:, :, None, None] + difficulty + fit + luck
    # levels and spreads keep nearly all chances inside 0-1; clipping is symmetric enough not to move a mean by 0.001
    verdicts = rng.random(chance.shape) < np.clip(chance, 0.0, 1.0)
    base = rng.random((len(TASKS), NOISE_REPLICATES, n_items)) < BASE + difficulty[0]
    return SimulatedSweep(truth, verdicts.astype(np.float64), base.astype(np.float64))


def ranked(verdicts_KTRI: NDArray[np.float64]) -> Boards:
    """Places as the leaderboard gives them."""
    n_stacks = verdicts_KTRI.shape[0]
    pairs = list(combinations(range(n_stacks), 2))
    parts = {
        task: {(a, b): difference_of_samples(verdicts_KTRI[a, at], verdicts_KTRI[b, at]) for a, b in pairs}
        for at, task in enumerate(TASKS)
    }
    boards = {
        task: rank_intervals(n_stacks, {pair: mean_difference([parts[task][pair]]) for pair in pairs}) for task in TASKS
    }
    for kind in KINDS:
        means = {pair: mean_difference([parts[task][pair] for task in kind]) for pair in pairs}
        boards[kind[0].split("-")[0]] = rank_intervals(n_stacks, means)
    return boards


def covers(intervals: Sequence[RankInterval], truth_K: NDArray[np.float64]) -> tuple[bool, bool]:
    """Whether all rank intervals, and all tiers, are right."""
    truth = np.round(truth_K, 9)
    ranks = tiers = True
    for place, score in zip(intervals, truth, strict=True):
        n_above, n_below = int((truth > score).sum()), int((truth < score).sum())
        ranks &= place.best_rank <= 1 + n_above and place.worst_rank >= truth.size - n_below
        tiers &= place.tier - 1 <= np.unique(truth[truth > score]).size
    return ranks, tiers


def covered(boards: Boards, sweep: SimulatedSweep) -> NDArray[np.bool_]:
    """Shape: boards x (ranks, tiers)."""
    truths = {task: sweep.truth_KT[:, at] for at, task in enumerate(TASKS)}
    for kind in KINDS:
        truths[kind[0].split("-")[0]] = np.mean([truths[task] for task in kind], axis=0)
    return np.array([covers(intervals, truths[name]) for name, intervals in boards.items()])


def stack_name(number: int) -> str:
    """Names sort as their numbers."""
    return f"stack-{number:02}"


def boards_of(board: Leaderboard) -> Boards:
    """The rank intervals of a leaderboard, in the order of the stacks' names."""
    boards = {task.task: {standing.stack: standing.place for standing in task.standings} for task in board.tasks}
    for kind in board.overall:
        boards["interactive" if kind.is_interactive else "static"] = {
            standing.stack: standing.place for standing in kind.standings
        }
    return {name: [place for _, place in sorted(members.items()) if place] for name, members in boards.items()}


@dataclass(frozen=True, slots=True)
class FailedSweep:
    """A sweep of which trials failed."""

    sweep: SimulatedSweep
    """With the truth by intention to treat, and the base model's verdicts where the agent failed."""
    is_lost_KTR: NDArray[np.bool_]
    """The infrastructure lost the trial."""
    is_agents_KTR: NDArray[np.bool_]
    """The agent handed in nothing usable."""


def with_failures(sweep: SimulatedSweep, rng: np.random.Generator, share: float) -> FailedSweep:
    """The sweep with failed trials; share: of all trials, half of it for each kind of fault.

    A stack keeps one run on every task at least: without any it would have no place.
    """
    n_stacks, n_tasks, n_runs, _ = sweep.verdicts_KTRI.shape
    is_lost = rng.random((n_stacks, n_tasks, n_runs)) < share / 2
    is_lost[..., 0] &= ~is_lost.all(axis=-1)
    # among trials that were not lost; which stack fails often differs from task to task
    often_K = np.linspace(0.0, share, n_stacks) / (1 - share / 2)
    often_KT = np.array([np.roll(often_K, 3 * at) for at in range(n_tasks)]).T
    is_agents = (rng.random(is_lost.shape) < often_KT[..., None]) & ~is_lost
    base_TI = sweep.base_TAI[:, 0]
    verdicts = np.where(is_agents[..., None], base_TI[None, :, None], sweep.verdicts_KTRI)
    truth = (1 - often_KT) * sweep.truth_KT + often_KT * BASE
    return FailedSweep(SimulatedSweep(truth, verdicts, sweep.base_TAI), is_lost, is_agents)


def ranked_runs(verdicts_KTRI: NDArray[np.float64], counts_KTR: NDArray[np.bool_]) -> Boards:
    """As `ranked`, of the runs that count; a stack without any on a task has no place and is left out there."""
    n_stacks = verdicts_KTRI.shape[0]
    boards: Boards = {}
    parts = []
    for at in range(len(TASKS)):
        samples = [verdicts_KTRI[stack, at, counts_KTR[stack, at]] for stack in range(n_stacks)]
        pairs = [(a, b) for a, b in combinations(range(n_stacks), 2) if len(samples[a]) and len(samples[b])]
        parts.append({(a, b): difference_of_samples(samples[a], samples[b]) for a, b in pairs})
        boards[TASKS[at]] = rank_intervals(n_stacks, {pair: mean_difference([parts[at][pair]]) for pair in pairs})
    for kind in KINDS:
        of_kind = [parts[TASKS.index(task)] for task in kind]
        common = [pair for pair in of_kind[0] if all(pair in part for part in of_kind)]
        means = {pair: mean_difference([part[pair] for part in of_kind]) for pair in common}
        boards[kind[0].split("-")[0]] = rank_intervals(n_stacks, means)
    return boards


def simulate_failures(arguments: argparse.Namespace, rng: np.random.Generator) -> int:
    """Rank sweeps with failed trials by both rules, print what they cover; 1 if the present one covers too little."""
    rules: dict[str, list[NDArray[np.bool_]]] = {"intention to treat": [], "failed trials left out": []}
    n_other = n_failed = 0
    for number in range(arguments.sweeps):
        plain = simulate(rng, arguments.stacks, arguments.runs, arguments.items)
        failed = with_failures(plain, rng, arguments.failed)
        boards = ranked_runs(failed.sweep.verdicts_KTRI, ~failed.is_lost_KTR)
        rules["intention to treat"].append(covered(boards, failed.sweep))
        without = ranked_runs(plain.verdicts_KTRI, ~(failed.is_lost_KTR | failed.is_agents_KTR))
        rules["failed trials left out"].append(covered(without, failed.sweep))
        n_failed += int((failed.is_lost_KTR | failed.is_agents_KTR).sum())
        if number < arguments.boards:
            n_other += boards_of(make_leaderboard(pool_of(failed.sweep, failed))) != boards
    n_trials = arguments.sweeps * plain.verdicts_KTRI[..., 0].size
    print(f"{arguments.sweeps} sweeps, {n_failed / n_trials:.1%} of {n_trials} trials failed")
    print("board         " + "".join(f"  {rule}: ranks, tiers" for rule in rules))
    shares = {rule: np.mean(verdicts, axis=0) for rule, verdicts in rules.items()}
    for at, name in enumerate(boards):
        columns = (f"{ranks:10.1%} {tiers:10.1%}" for ranks, tiers in (share[at] for share in shares.values()))
        print(f"{name:14}" + "        ".join(columns))
    print(f"make_leaderboard disagrees on {n_other} of {min(arguments.boards, arguments.sweeps)} sweeps")
    return 0 if shares["intention to treat"].min() >= 0.95 and not n_other else 1


def trials_of(sweep: SimulatedSweep) -> Iterator[tuple[int, str, int, NDArray[np.float64]]]:
    """(number of the stack, task, seed, verdicts_I) of every trial."""
    n_stacks, _, n_runs, _ = sweep.verdicts_KTRI.shape
    for stack in range(n_stacks):
        for at, task in enumerate(TASKS):
            for seed in range(n_runs):
                yield stack, task, seed, sweep.verdicts_KTRI[stack, at, seed]


def by_item(verdicts_I: NDArray[np.float64]) -> dict[str, float | None]:
    """Item -> verdict."""
    return {f"item-{at:04}": float(value) for at, value in enumerate(verdicts_I)}


def pool_of(sweep: SimulatedSweep, failed: FailedSweep | None = None) -> list[PooledTrial]:
    """The trials of a sweep as a pool, without files. failed: the same sweep, with which of its trials failed."""
    pool = []
    for stack, task, seed, verdicts_I in trials_of(sweep):
        base_I = sweep.base_TAI[TASKS.index(task), 0]
        name = f"{task}-{stack_name(stack)}-{seed}"
        gain = Estimate(float(verdicts_I.mean() - base_I.mean()), None, None, verdicts_I.size)
        at = (stack, TASKS.index(task), seed)
        is_lost = failed is not None and bool(failed.is_lost_KTR[at])
        kind = "no_submission" if is_lost or (failed is not None and failed.is_agents_KTR[at]) else "measured"
        row = SweepRow(
            task=task,
            agent=stack_name(stack),
            seed=seed,
            trial=name,
            state="finished",
            gain=None if is_lost else gain,
            result=kind,
            scaffold=stack_name(stack),
            integrity="clean",
        )
        conditions = TrialConditions(task, "simulated", "items", "secret", "base", "protocol", "budget")
        trial, final = LeaderboardTrial(name, row, (), True, not is_lost), {} if is_lost else by_item(verdicts_I)
        pool.append(PooledTrial(trial, conditions, task in KINDS[1], stack_name(stack), name, by_item(base_I), final))
    return pool


def write_sweep(sweep: SimulatedSweep, out: Path) -> None:
    """The trials of a sweep as finished trials with their cards, which `agent2 leaderboard` verifies and ranks."""
    for stack, task, seed, verdicts_I in trials_of(sweep):
        write_trial(out / f"{task}-{stack_name(stack)}-{seed}", task, stack_name(stack), seed, verdicts_I,
                    sweep.base_TAI[TASKS.index(task)])  # fmt: skip


def write_trial(
    folder: Path, task: str, agent: str, seed: int, verdicts_I: NDArray[np.float64], base_AI: NDArray[np.float64]
) -> None:
    """One finished trial with a single submission."""
    paths, base, final = TrialPaths(folder), "b" * 64, digest_of([task, agent, seed])
    spec = load_task("arithmetic").model_copy(
        update={"name": task, "level": Level.INTERACTIVE if task in KINDS[1] else Level.RULE_BASED}
    )
    paths.events.mkdir(parents=True)
    (folder / "cards").mkdir()
    base_card, final_card = (paths.card(side, Split.TEST_PRIVATE) for side in ("base", "final"))
    public_card, submission_card = paths.card("base", Split.TEST_PUBLIC), paths.submission_card(1)
    submission_card.parent.mkdir(parents=True)
    twin = next((cards for cards in folder.parent.glob(f"{task}-*/cards") if cards.parent != folder), None)
    if twin is not None:  # trials of a sweep share the base model's cards
        for card in (base_card, paths.noise_card, public_card):
            shutil.copytree(twin / card.name, card)
    else:
        write_card(base_card, base, base_AI[:1])
        write_card(paths.noise_card, base, base_AI)
        write_card(public_card, base, np.zeros((1, 1)), Split.TEST_PUBLIC)
    write_card(submission_card, final, np.ones((1, 1)), Split.TEST_PUBLIC)
    write_card(final_card, final, verdicts_I[None])
    band, gain = measure_noise(paths.noise_card), paired_gain(base_card, final_card)
    config = TrialConfig(trial_id=folder.name, task=spec, agent=agent, seed=seed, sandbox="bubblewrap",
                         budget=spec.budget, base_model=spec.base_model)  # fmt: skip
    lock = {"agent_digest": agent, "config_digest": config_digest(config), "benchmark": "simulated-v1",
            "installation_secret_digest": "secret", "base_model": {"weights_digest": base},
            "items": {split.value: "i" * 64 for split in Split}}  # fmt: skip
    audit = IntegrityRecord((IntegrityCheck("simulated", "nothing: there was no agent"),))
    events = [
        {"event": "base_scored", "split": "test_public", "score": card_score(public_card)},
        {"event": "agent_started", "deadline": 1060.0},
        {"event": "agent_ended", "end": "exited", "exit_code": 0},
        {"event": "base_scored", "split": "test_private", "score": card_score(base_card)},
        {"event": "noise_measured", "half_width": band.half_width, "n_replicates": band.n_replicates,
         "over": band.over},
        {"event": "final_scored", "split": "test_private", "submission": 1, "gain": gain,
         "score": card_score(final_card)},
        {"event": "audited", "checks": 1, "findings": 0, "seconds": 0.0,
         "digest": hashlib.sha256(msgspec.json.encode(audit)).hexdigest()},
        {"event": "finished"},
    ]  # fmt: skip
    submission = SubmissionRecord(1, 1030.0, "output/model", "", SubmissionState.SCORED, final, False, None,
                                  card_score(submission_card), None, "", 1040.0)  # fmt: skip
    rows = [msgspec.json.encode({"t": 1000.0 + at, **row}) + b"\n" for at, row in enumerate(events)]
    paths.trial_log.write_bytes(b"".join(rows))
    for path, content in (
        (paths.trial_json, config.model_dump(mode="json")), (paths.lock_json, lock),
        (paths.shared_submissions, (submission,)), (paths.integrity, audit),
    ):  # fmt: skip
        path.write_bytes(msgspec.json.encode(content))


def write_card(path: Path, weights: str, verdicts_AI: NDArray[np.float64], split: Split = Split.TEST_PRIVATE) -> None:
    """A card of rollouts that nobody played."""
    n_attempts, n_items = verdicts_AI.shape
    protocol = EvaluationProtocol(
        benchmark="simulated-v1", split=split, items_digest="i" * 64, sampling=SamplingSettings(),
        attempts=n_attempts, max_turns=1, environment="simulated", scorer="simulated", dtype="float32",
        chat_template_digest="t" * 64,
    )  # fmt: skip
    header = CardHeader(checkpoint_name=path.name, checkpoint_digest=weights, protocol=protocol,
                        reporting=ReportingRule(n_replicates=200), lock={}, created_at=1.0)  # fmt: skip
    # trials are told apart by their rollouts, so no two models say the same
    turn = Turn(f"an answer of {weights[:12]}", None, StopReason.END, 1, 1)
    with CardWriter(path, header) as writer:
        for item, at in ((f"item-{at:04}", at) for at in range(n_items)):
            for attempt in range(n_attempts):
                rollout = Rollout(item, attempt, attempt, RolloutStatus.COMPLETED, [Message("user", "?")], [turn],
                                  "an answer", {}, Usage(1, 1, 0.0))  # fmt: skip
                writer.append(ScoredRollout(rollout, Score(float(verdicts_AI[attempt, at]), "drawn")))
        writer.close()


def write_and_read(sweep: SimulatedSweep, out: Path) -> int:
    """Write a sweep, make its board from the folders; 1 unless it is the simulated one."""
    started = time.process_time()
    write_sweep(sweep, out)
    written = time.process_time()
    pool = read_pool([out])
    board = make_leaderboard(pool.trials, pool.left_out)
    boards = boards_of(board)
    is_same = boards == ranked(sweep.verdicts_KTRI)
    n_verified = sum(trial.trial.is_verified for trial in pool.trials)
    print(f"{len(pool.trials)} trials, {n_verified} verified, {len(board.left_out)} left out; ranks and tiers are "
          f"{'those' if is_same else 'NOT those'} of the simulation and cover the truth on {_words(boards, sweep)} "
          f"boards; written in {written - started:.0f} s of processor time, read, verified and ranked in "
          f"{time.process_time() - written:.0f} s")  # fmt: skip
    return 0 if is_same and n_verified == sweep.verdicts_KTRI[..., 0].size else 1


def _words(boards: Boards, sweep: SimulatedSweep) -> str:
    right = covered(boards, sweep).all(axis=1)
    return f"{right.sum()} of {right.size}"


def main() -> int:
    """Run the simulation and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sweeps", 1000), ("stacks", 8), ("runs", 5), ("items", 100), ("boards", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--failed", type=float, default=0.0, help="share of trials that fail")
    parser.add_argument("--write", type=Path, help="write one sweep as folders of trials and rank them from there")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    if arguments.write is not None:
        return write_and_read(simulate(rng, arguments.stacks, arguments.runs, arguments.items), arguments.write)
    if arguments.failed:
        return simulate_failures(arguments, rng)
    started = time.process_time()
    verdicts, widths, n_tiers, n_other = [], [], [], 0
    for number in range(arguments.sweeps):
        sweep = simulate(rng, arguments.stacks, arguments.runs, arguments.items)
        boards = ranked(sweep.verdicts_KTRI)
        verdicts.append(covered(boards, sweep))
        widths.append(
            [np.mean([interval.worst_rank - interval.best_rank + 1 for interval in board]) for board in boards.values()]
        )
        n_tiers.append([max(interval.tier for interval in board) for board in boards.values()])
        if number < arguments.boards:
            n_other += boards_of(make_leaderboard(pool_of(sweep))) != boards
    share_BC = np.mean(verdicts, axis=0)
    n_trials = sweep.verdicts_KTRI[..., 0].size
    print(
        f"{arguments.sweeps} sweeps of {n_trials} trials: {arguments.stacks} stacks, {arguments.runs} runs, "
        f"{arguments.items} items"
    )
    print("board          ranks   tiers   width   tiers found")
    for at, name in enumerate(boards):
        ranks, tiers = share_BC[at]
        print(f"{name:13} {ranks:6.1%}  {tiers:6.1%}   {np.mean(widths, axis=0)[at]:5.1f}   "
              f"{np.mean(n_tiers, axis=0)[at]:5.1f}")  # fmt: skip
    print(f"make_leaderboard disagrees on {n_other} of {min(arguments.boards, arguments.sweeps)} sweeps; "
          f"{time.process_time() - started:.0f} s of processor time")  # fmt: skip
    return 0 if share_BC.min() >= 0.95 and not n_other else 1


if __name__ == "__main__":
    sys.exit(main())
