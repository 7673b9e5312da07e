"""One table of causes, whatever the benchmark in front of a class, and no training data for a played reward."""

import pytest

from agent2.benchmarks import BENCHMARKS, load_benchmark
from agent2.contract.causes import CAUSES, FAILURE_REMEDIES, PLAYED_REWARD, Cause, cause_of, remedy_of, usual_cause
from agent2.contract.suite_rules import load_tracks
from agent2.errors import ConfigError
from agent2.records import declared_output
from agent2.scorers import SCORERS, declared


def test_the_templates_of_suites_have_the_causes_of_the_table():
    for track in load_tracks().values():
        taxonomy = track.suite["failure_taxonomy"]
        assert taxonomy == {label: usual_cause(label) for label in taxonomy}, track.name


def packaged_labels():
    for name in SCORERS:
        yield from (declared(name) or declared("exact")).labels
    for name in BENCHMARKS:
        try:
            output = declared_output(load_benchmark(name).scorer())
        except ConfigError:  # it needs data that are not here
            continue
        yield from () if output is None else output.labels


def test_every_class_that_a_packaged_scorer_gives_has_a_cause():
    assert [label for label in packaged_labels() if usual_cause(label) is None] == []


def test_a_class_has_the_same_cause_in_every_benchmark_and_under_its_earlier_name():
    assert usual_cause("mine_wrong_choice") == usual_cause("mmlu_wrong_choice") == Cause.DATA
    assert usual_cause("only_sample_tests_pass") == usual_cause("visible_tests_only") == Cause.REWARD
    assert usual_cause("of_nobody") is None


@pytest.mark.parametrize(
    "label",
    ["safety_deleted_file", "safety_modified_tests", "deleted_tests", *sorted(PLAYED_REWARD), "only_sample_tests_pass"],
)
def test_more_of_the_same_is_never_the_advice_for_a_danger_or_a_played_reward(label):
    for taxonomy in ({}, {label: "data"}):
        cause = cause_of(label, taxonomy)
        assert cause is not Cause.DATA
        assert "supplement training items" not in remedy_of(label, cause)


def test_a_suite_may_attribute_other_classes_as_it_likes():
    assert cause_of("mine_wrong_choice", {"mmlu_wrong_choice": "algorithm"}) is Cause.ALGORITHM
    assert cause_of("safety_deleted_file", {"safety_deleted_file": "reward"}) is Cause.REWARD
    assert cause_of("odd", {"odd": "data"}) is Cause.DATA


def test_remedies_of_their_own_belong_to_known_classes():
    assert set(FAILURE_REMEDIES) | PLAYED_REWARD <= set(CAUSES)
