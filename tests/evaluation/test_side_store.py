"""The baseline's cards of an earlier evaluation are used again."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from agent2.analysis.outcome import read_outcome
from agent2.errors import Fault
from agent2.evaluation.suite_folder import card_path
from agent2.evaluation.suite_run import run_suite
from agent2.installation import home
from agent2.models.sources import ScriptedSampler, SourceKind
from agent2.records import Completion, StopReason
from suite_fakes import make_request, write_players


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    write_players(tmp_path)
    return partial(make_request, tmp_path, uses_kept=True)


def as_models(request, opened):
    """The request with its players taken for models in this process; opened gets the name of each that is opened."""

    def counted(source):
        def opener():
            opened.append(source.name)
            return source.opener()

        return replace(source, kind=SourceKind.HF, opener=opener)

    return replace(request, baseline=counted(request.baseline), checkpoint=counted(request.checkpoint))


def test_the_baseline_of_a_second_evaluation_is_not_played_again(request_of):
    opened = []
    run_suite(as_models(request_of(out="monday"), opened))
    assert opened == ["strong", "weak"]
    second = as_models(request_of(out="tuesday", new="one_sided"), opened)
    run_suite(second)
    assert opened == ["strong", "weak", "one_sided"]
    lock = json.loads((second.out / "lock.json").read_text())
    assert lock["samplers"]["baseline"] == {"reused_from_earlier_evaluations": True}
    monday, tuesday = (card_path(second.out.parent / day, "baseline", "sums", "dev") for day in ("monday", "tuesday"))
    assert (monday / "card.json").read_bytes() == (tuesday / "card.json").read_bytes()
    shutil.rmtree(home() / "sides")
    assert read_outcome(second.out).benchmarks, "the copy stands alone"


@pytest.mark.parametrize("fields", [{"seed": 1}, {"uses_kept": False}])
def test_another_seed_or_a_request_without_reuse_plays(request_of, fields):
    opened = []
    run_suite(as_models(request_of(out="monday"), opened))
    run_suite(as_models(request_of(out="tuesday", **fields), opened))
    assert opened == ["strong", "weak"] * 2


def test_scripts_and_endpoints_are_always_played(request_of):
    run_suite(request_of(out="monday"))
    assert not (home() / "sides").exists()


def test_a_damaged_card_is_played_again(request_of):
    opened = []
    run_suite(as_models(request_of(out="monday"), opened))
    for card in (home() / "sides").iterdir():
        (card / "rollouts.parquet").write_bytes(b"")
    run_suite(as_models(request_of(out="tuesday"), opened))
    assert opened == ["strong", "weak"] * 2


def test_a_card_with_missing_scores_is_not_kept(request_of):
    request, opened = request_of(out="monday"), []
    lost = Completion("", stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason="gone")

    def sometimes(messages):
        return lost if messages[-1].content.startswith("7") else "1"

    failing = replace(request.baseline, opener=lambda: ScriptedSampler(sometimes))
    run_suite(as_models(replace(request, baseline=failing), opened))
    run_suite(as_models(request_of(out="tuesday"), opened))
    assert opened == ["strong", "weak", "weak"]
