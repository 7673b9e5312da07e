import pytest

from agent2.contract.suite import Suite
from agent2.contract.suite_diff import Impact, diff_suites
from agent2.contract.suite_files import load_suite


@pytest.fixture(scope="module")
def suite():
    return load_suite("agent_tool_regression_v1")


def edited(suite, change):
    data = suite.model_dump(mode="json")
    change(data)
    return Suite.model_validate(data)


def named(entries, name):
    return next(entry for entry in entries if entry["name"] == name)


def test_equal_suites_do_not_differ(suite):
    diff = diff_suites(suite, load_suite("agent_tool_regression_v1"))
    assert diff.differences == () and diff.verdict == "the suites are equal"
    assert diff.scores_stay_comparable and diff.comparable == ("bfcl_v3", "api_bank", "swebench_verified")


def test_another_temperature_makes_every_score_incomparable(suite):
    diff = diff_suites(suite, edited(suite, lambda data: data["protocol"]["sampling"].update(temperature=0.6)))
    (difference,) = diff.differences
    assert (difference.field.field, difference.field.left, difference.field.right) == (
        "protocol.sampling.temperature",
        0.0,
        0.6,
    )
    assert difference.reach is Impact.SCORES and difference.benchmark is None
    assert diff.comparable == () and diff.incomparable == ("bfcl_v3", "api_bank", "swebench_verified")
    assert not diff.scores_stay_comparable


def test_another_scorer_touches_its_benchmark_alone(suite):
    change = edited(suite, lambda data: named(data["benchmarks"], "api_bank")["scorer"].update(tier="judge"))
    diff = diff_suites(suite, change)
    assert [difference.field.field for difference in diff.differences] == ["benchmarks[api_bank].scorer.tier"]
    assert diff.incomparable == ("api_bank",) and diff.comparable == ("bfcl_v3", "swebench_verified")
    assert diff.verdict == "scores on api_bank are incomparable; scores on bfcl_v3, swebench_verified stay comparable"


CHANGES = {
    "gates[cost_budget].max_excess": lambda data: named(data["gates"], "cost_budget").update(max_excess=0.5),
    "metrics[bfcl_executable_accuracy].role": lambda data: named(data["metrics"], "bfcl_executable_accuracy").update(
        role="diagnostic"
    ),
    "benchmarks[swebench_verified].requires": lambda data: named(data["benchmarks"], "swebench_verified").update(
        requires=[]
    ),
    "cadence.dev.n_items": lambda data: data["cadence"]["dev"].update(n_items=7),
    "failure_taxonomy.no_call": lambda data: data["failure_taxonomy"].update(no_call="tools"),
    "control_group.kind": lambda data: data["control_group"].update(kind="production"),
}


@pytest.mark.parametrize("field", CHANGES)
def test_what_changes_only_decisions_leaves_scores_comparable(suite, field):
    diff = diff_suites(suite, edited(suite, CHANGES[field]))
    assert [(difference.field.field, difference.reach) for difference in diff.differences] == [
        (field, Impact.DECISIONS)
    ]
    assert diff.scores_stay_comparable


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("description", lambda data: data.update(description="other words")),
        ("version", lambda data: data.update(version="1.1")),
        ("benchmarks[bfcl_v3].urls.code", lambda data: named(data["benchmarks"], "bfcl_v3")["urls"].update(code=None)),
        ("benchmarks (order)", lambda data: data["benchmarks"].reverse()),
    ],
)
def test_words_and_order_change_nothing(suite, field, change):
    (difference,) = diff_suites(suite, edited(suite, change)).differences
    assert (difference.field.field, difference.reach) == (field, Impact.NEITHER)


@pytest.mark.parametrize("field", ["measure", "split"])
def test_another_way_of_measuring_makes_that_benchmark_incomparable(suite, field):
    values = {"measure": "view:ast_match", "split": "dev"}
    change = edited(
        suite, lambda data: named(data["metrics"], "bfcl_executable_accuracy").update({field: values[field]})
    )
    assert diff_suites(suite, change).incomparable == ("bfcl_v3",)


def test_a_benchmark_of_one_suite_alone_is_told(suite):
    def drop(data):
        data["benchmarks"] = [entry for entry in data["benchmarks"] if entry["name"] != "api_bank"]

    diff = diff_suites(suite, edited(suite, drop))
    assert diff.one_sided == ("api_bank",) and not diff.scores_stay_comparable
    assert diff.comparable == ("bfcl_v3", "swebench_verified")
