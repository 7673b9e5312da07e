"""agent2 prune at the command line: what it prints, and when it exits with what."""

import json
import shutil

import numpy as np
import pytest

from cli_builders import run_agent2
from pool_builders import simulation


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    module, out = simulation(), tmp_path_factory.mktemp("written")
    module.write_sweep(module.simulate(np.random.default_rng(3), n_stacks=1, n_runs=1, n_items=5), out)
    return out


@pytest.fixture
def home(written, tmp_path):
    """A folder with ./trials: one finished trial with 1 MiB of weights, one that is not finished."""
    for name in ("done", "open"):
        shutil.copytree(written / "static-1-stack-00-0", tmp_path / "trials" / name)
        snapshot = tmp_path / "trials" / name / "submissions" / "1" / "snapshot"
        snapshot.mkdir()
        (snapshot / "model.safetensors").write_bytes(b"w" * (1 << 20))
    log = tmp_path / "trials" / "open" / "events" / "trial.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"finished"' not in line))
    return tmp_path


def weights(home, name):
    return (home / "trials" / name / "submissions" / "1" / "snapshot" / "model.safetensors").exists()


def test_without_yes_it_lists_and_changes_nothing(home):
    listed = run_agent2("prune", home=home)
    assert listed.returncode == 0 and weights(home, "done") and weights(home, "open")
    assert "snapshots of submissions (1 files, 1.0 MiB)" in listed.stdout and "is not finished" in listed.stdout
    assert "no longer possible: agent2 retention" in listed.stdout and "repeat with --yes" in listed.stdout


def test_with_yes_it_lists_first_and_drops_of_finished_trials_only(home):
    pruned = run_agent2("prune", "trials", "--yes", home=home)
    assert pruned.returncode == 0 and not weights(home, "done") and weights(home, "open")
    assert pruned.stdout.index("in all: 1.0 MiB") < pruned.stdout.index("freed 1.0 MiB")
    again = run_agent2("prune", "trials", home=home)
    assert "1 of 2 trials have nothing to drop" in again.stdout and "no longer possible" not in again.stdout


def test_json_has_the_same_figures(home):
    document = json.loads(run_agent2("prune", "--yes", "--json", home=home).stdout)
    done, unfinished = document["trials"]
    assert document["frees_bytes"] == document["freed_bytes"] == done["freed_bytes"] >= 1 << 20
    assert done["left_alone"] is None and "not finished" in unfinished["left_alone"]
    assert done["parts"] == [{"kind": "snapshots of submissions", "n_files": 1, "n_bytes": done["frees_bytes"]}]
    assert document["no_longer_possible"] and document["still_possible"]


@pytest.mark.parametrize(
    ("arguments", "why"), [([], "no ./trials"), (["nothing"], "no such folder"), (["empty"], "contains no trial")]
)
def test_a_folder_without_trials_is_refused(tmp_path, arguments, why):
    (tmp_path / "empty").mkdir()
    refused = run_agent2("prune", *arguments, home=tmp_path)
    assert refused.returncode == 2 and why in refused.stderr
