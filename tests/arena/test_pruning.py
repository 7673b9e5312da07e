"""What `agent2 prune` drops, and what it must leave: links, other trials, whatever a kill interrupts."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.arena.analysis.pool import read_pool, verify_trial
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.pruning import CACHES, SNAPSHOTS, WEIGHTS, plan_pruning, prune, read_record
from agent2.arena.trial_folder import TrialPaths
from agent2.reports.leaderboard_pages import leaderboard_html, leaderboard_markdown
from agent2.reports.pages import write_report
from pool_builders import mark_as_own, simulation
from web_builders import digest_of_tree

WEIGHT_BYTES = 40_000
KEPT_FILES = {
    "workspace/code/train.py", "workspace/data/train.jsonl", "workspace/output/design.json",
    "workspace/output/model/config.json", "workspace/output/log.jsonl", "workspace/.grader/test_private.jsonl",
    "workspace/code/__pycache__/note.txt",
}  # fmt: skip
WEIGHT_FILES = {
    "submissions/1/snapshot/model.safetensors": SNAPSHOTS,
    "submissions/1/snapshot/config.json": SNAPSHOTS,
    "workspace/output/model/model.safetensors": WEIGHTS,
    "workspace/output/model/tokenizer.json": WEIGHTS,
    "workspace/output/checkpoint-10/optimizer.state": WEIGHTS,
    "workspace/data/copy.PT": WEIGHTS,
    "workspace/.cache/hub/blob": CACHES,
    "workspace/code/__pycache__/train.cpython-311.pyc": CACHES,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    module, out = simulation(), tmp_path_factory.mktemp("written")
    module.write_sweep(module.simulate(np.random.default_rng(3), n_stacks=1, n_runs=2, n_items=20), out)
    return out


@pytest.fixture
def trials(written, tmp_path, monkeypatch):
    """Two finished trials, the first one marked, with what an agent leaves behind."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "agent2"))
    folder = tmp_path / "trials"
    for seed in (0, 1):
        shutil.copytree(written / f"static-1-stack-00-{seed}", folder / f"run-{seed}")
        for name in {*KEPT_FILES, *WEIGHT_FILES}:
            path = folder / f"run-{seed}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(WEIGHT_BYTES) if name in WEIGHT_FILES else b"{}\n")
    mark_as_own(folder / "run-0")
    return [folder / "run-0", folder / "run-1"]


def files_of(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def everything_read_of(trials, out):
    """Board, reports and verification of trials, as bytes and records."""
    pool = read_pool([trials[0].parent])
    board = make_leaderboard(pool.trials)
    pages = []
    for trial in trials:
        evidence = read_evidence(trial)
        write_report(evidence, analyse(evidence), out)
        pages += [path.read_bytes() for path in sorted(out.iterdir())]
    verified = [(report.is_verified, report.mark, report.problems) for report in map(verify_trial, trials)]
    return leaderboard_html(board), leaderboard_markdown(board), pages, verified


def test_weights_go_and_board_reports_and_verification_are_the_same_bytes(trials, tmp_path):
    before = everything_read_of(trials, tmp_path / "report")
    plans = plan_pruning(trials)
    kept = [files_of(trial) - set(WEIGHT_FILES) for trial in trials]
    for plan, trial, names in zip(plans, trials, kept, strict=True):
        pruned = prune(plan)
        assert not pruned.problems and pruned.n_bytes == plan.n_bytes and pruned.n_files == len(WEIGHT_FILES)
        assert files_of(trial) - {"pruned.json", "harness.lock"} == names >= KEPT_FILES
        assert not TrialPaths(trial).snapshot(1).exists()
    assert everything_read_of(trials, tmp_path / "report") == before
    assert before[3][0][0], "the marked trial was verified before"


def test_a_plan_changes_nothing_and_counts_each_kind(trials):
    before = digest_of_tree(trials[0])
    (plan,) = plan_pruning(trials[:1])
    assert digest_of_tree(trials[0]) == before
    n_files = {part.kind: part.n_files for part in plan.parts}
    assert n_files == {SNAPSHOTS: 2, WEIGHTS: 4, CACHES: 2}
    assert plan.n_bytes >= len(WEIGHT_FILES) * WEIGHT_BYTES


def test_a_pruned_trial_has_nothing_left_to_drop_and_its_record_stays(trials):
    prune(plan_pruning(trials[:1])[0])
    record = read_record(trials[0])
    assert record.is_complete and record.n_files == len(WEIGHT_FILES)
    (plan,) = plan_pruning(trials[:1])
    assert (plan.n_files, plan.left_alone) == (0, "")
    assert prune(plan).n_files == 0 and read_record(trials[0]) == record
    assert read_record(trials[1]) is None


def test_links_are_not_followed(trials, tmp_path):
    outside = tmp_path / "outside"
    (outside / "snapshot").mkdir(parents=True)
    for name in ("model.safetensors", "snapshot/model.safetensors"):
        (outside / name).write_bytes(b"mine")
    root = trials[0]
    shutil.rmtree(root / "workspace" / "output")
    (root / "workspace" / "output").symlink_to(outside)
    (root / "workspace" / "model.pt").symlink_to(outside / "model.safetensors")
    (root / "submissions" / "2").symlink_to(outside)
    shutil.rmtree(root / "submissions" / "1" / "snapshot")
    (root / "submissions" / "1" / "snapshot").symlink_to(outside)
    prune(plan_pruning([root])[0])
    assert files_of(outside) == {"model.safetensors", "snapshot/model.safetensors"}
    assert (root / "workspace" / "model.pt").is_symlink()
    assert not (root / "workspace" / ".cache" / "hub" / "blob").exists(), "it did prune"


@pytest.mark.parametrize("place", ["workspace", "submissions"])
def test_a_link_in_the_place_of_a_folder_of_the_harness_is_not_entered(trials, tmp_path, place):
    root = trials[0]
    (root / place).rename(tmp_path / "elsewhere")
    (root / place).symlink_to(tmp_path / "elsewhere")
    before = digest_of_tree(tmp_path / "elsewhere")
    prune(plan_pruning([root])[0])
    assert digest_of_tree(tmp_path / "elsewhere") == before


def test_a_file_with_a_name_elsewhere_frees_nothing_and_one_with_two_names_here_counts_once(trials, tmp_path):
    root = trials[0]
    weights = root / "workspace" / "output" / "model" / "model.safetensors"
    (plan,) = plan_pruning([root])
    os.link(weights, root / "workspace" / "output" / "model" / "again.safetensors")
    (linked_here,) = plan_pruning([root])
    assert (linked_here.n_bytes, linked_here.n_files) == (plan.n_bytes, plan.n_files + 1)
    os.link(weights, tmp_path / "kept.safetensors")
    (linked_outside,) = plan_pruning([root])
    assert linked_outside.n_bytes == plan.n_bytes - 512 * weights.stat().st_blocks
    assert prune(linked_outside).n_bytes == linked_outside.n_bytes
    assert (tmp_path / "kept.safetensors").stat().st_size == WEIGHT_BYTES


def without_its_end(root):
    log = TrialPaths(root).trial_log
    log.write_bytes(b"".join(line for line in log.read_bytes().splitlines(True) if b'"finished"' not in line))


def with_an_open_audit(root):
    record = json.loads((root / "integrity.json").read_text())
    finding = {"name": "not checked", "severity": "high", "effect": "not cleared", "words": "It was cut short."}
    record["checks"][0]["findings"] = [finding]
    (root / "integrity.json").write_text(json.dumps(record))


def with_a_torn_audit(root):
    (root / "integrity.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "why"),
    [(without_its_end, "not finished"), (with_an_open_audit, "audit is not finished"), (with_a_torn_audit, "be read")],
)
def test_a_trial_that_may_still_need_its_weights_is_left_alone(trials, change, why):
    finished = plan_pruning(trials[:1])[0]
    change(trials[0])
    before = digest_of_tree(trials[0])
    (plan,) = plan_pruning(trials[:1])
    assert why in plan.left_alone and plan.n_files == 0
    # a plan that was made before the change is checked again
    for stale in (plan, finished):
        assert why in prune(stale).problems[0]
    assert files_of(trials[0]) - {"harness.lock"} >= set(WEIGHT_FILES)
    (trials[0] / "harness.lock").unlink()
    assert digest_of_tree(trials[0]) == before


def test_a_trial_that_a_harness_holds_is_left_alone_until_it_lets_go(trials):
    (free,) = plan_pruning(trials[:1])
    with (trials[0] / "harness.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (plan,) = plan_pruning(trials[:1])
        assert plan.left_alone == "a harness is running it"
        assert "a harness is running it" in prune(free).problems[0]
        assert files_of(trials[0]) >= set(WEIGHT_FILES)
    assert prune(plan_pruning(trials[:1])[0]).n_files == len(WEIGHT_FILES)


def test_weights_that_another_trial_starts_from_stay(trials):
    path = trials[1] / "trial.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"base_model": str(TrialPaths(trials[0]).snapshot(1))}))
    used, user = plan_pruning(trials)
    assert used.left_alone == "trial run-1 starts from its weights" and user.n_files == len(WEIGHT_FILES)


def test_what_an_agent_made_read_only_goes(trials):
    folder = trials[0] / "workspace" / "output" / "model"
    folder.chmod(0o555)
    assert prune(plan_pruning(trials[:1])[0]).problems == ()
    assert not (folder / "model.safetensors").exists()


KILLED = """
import os, sys
from pathlib import Path
from agent2.arena.pruning import plan_pruning, prune
(plan,) = plan_pruning([Path(sys.argv[1])])
left = [int(sys.argv[3])]
def kill(event, arguments):
    if event == sys.argv[2]:
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        left[0] -= 1
sys.addaudithook(kill)
prune(plan)
"""


@pytest.mark.parametrize(("moment", "n_before"), [("os.rename", 1), ("os.remove", 1), ("os.rmdir", 0)])
def test_a_kill_leaves_whole_reports_and_the_same_call_goes_on(trials, tmp_path, moment, n_before):
    before = everything_read_of(trials, tmp_path / "report")
    frees = plan_pruning(trials[:1])[0].n_files
    killed = subprocess.run([sys.executable, "-c", KILLED, trials[0], moment, str(n_before)], check=False)
    assert killed.returncode == -9
    assert not read_record(trials[0]).is_complete
    snapshot = TrialPaths(trials[0]).snapshot(1)
    assert not snapshot.exists() or files_of(snapshot) == {"config.json", "model.safetensors"}
    assert everything_read_of(trials, tmp_path / "report") == before
    (plan,) = plan_pruning(trials[:1])
    assert plan.n_files <= frees and not prune(plan).problems
    assert files_of(trials[0]).isdisjoint(WEIGHT_FILES) and not list((trials[0] / "submissions" / "1").glob("snap*"))
    assert read_record(trials[0]).is_complete
    assert everything_read_of(trials, tmp_path / "report") == before
    assert Path(trials[1] / "submissions" / "1" / "snapshot" / "model.safetensors").exists()
