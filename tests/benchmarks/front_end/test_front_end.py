"""Requests for pages: what is drawn, what each player of the ladder gives, and that the reference pages hold."""

import re

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.front_end import LADDER, answer_of, careless, heavy, unstyled, without_script
from agent2.benchmarks.front_end.page_requests import KINDS, SOURCE
from agent2.errors import ConfigError
from agent2.evaluation.check import check_benchmark, play_items
from agent2.records import Split
from agent2.scorers.page_checks import missing_program, page_of
from agent2.scorers.page_code import code_faults
from agent2.scorers.page_runner import STEPS

SECRET = b"of this test"
N = 40


@pytest.fixture
def benchmark():
    return load_benchmark("front_end")


@pytest.mark.parametrize("split", list(Split))
def test_requests_say_what_their_checks_ask_and_the_reference_page_has_it(benchmark, split):
    items = benchmark.items(split, N, SECRET)
    assert {item.payload["task_type"] for item in items} == set(KINDS)
    for item in items:
        page = item.payload["reference"]
        assert page_of(item.reference).keys() == page.keys() and code_faults(page) == {}
        for part in item.payload["parts"]:
            assert part == "h1" or (part in item.prompt and f'id="{part[1:]}"' in page["index.html"]), part
        for check in item.payload["checks"]:
            for step, selector, *_ in check["steps"]:
                assert step in STEPS and re.match(r"#[\w-]+", selector)[0] in item.prompt, check


def test_splits_share_no_request_and_hidden_ones_need_the_secret(benchmark):
    rules = [{SOURCE.canonical(request) for request in SOURCE.first(split, N, SECRET)} for split in Split]
    assert len(set.union(*rules)) == sum(map(len, rules))
    with pytest.raises(ConfigError, match="installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)
    mine, yours = (benchmark.items(Split.TEST_PRIVATE, N, secret) for secret in (SECRET, b"another"))
    assert not {item.prompt for item in mine} & {item.prompt for item in yours}


def test_every_player_of_the_ladder_changes_what_it_says(benchmark):
    for item in benchmark.items(Split.DEV, N, None):
        page = item.payload["reference"]
        assert set(code_faults(careless(page))) >= {"language", "viewport", "inline handlers", "inline styles"}
        assert (
            "script" not in without_script(page)["index.html"]
            and page["script.js"] not in answer_of(unstyled(page))[:9]
        )
        assert "<label" not in careless(page)["index.html"] and len(heavy(page)["index.html"]) > 150_000
        assert unstyled(page)["style.css"] != page["style.css"]


@pytest.mark.slow
def test_the_ladder_rises_and_each_player_loses_the_views_that_it_is_to_lose(benchmark):
    if problem := missing_program():
        pytest.skip(problem)
    of_kind = {item.payload["task_type"]: item for item in benchmark.items(Split.DEV, N, None)}
    means = {}
    for name, player in LADDER.items():
        if name == "an empty answer":
            continue
        items = list(of_kind.values()) if name == "the reference page" else [of_kind["login"]]
        records = play_items(benchmark, items, lambda item, world, chat, player=player: player(item, chat))
        assert all(record.score.value is not None for record in records), records
        means[name] = {view: min(record.score.views[view] for record in records) for view in records[0].score.views}
        value = min(record.score.value for record in records)
        assert value == (1.0 if name.startswith(("works", "the")) else 0.0), (name, records)
    low = {
        "works, for good eyes on a wide screen": {"code", "responsive", "accessibility", "visual"},
        "works, too heavy": {"performance"},
        "works, without style": {"visual"},
        "the reference page": set(),
        "markup without a script": {"function"},
    }
    six = ("function", "visual", "code", "responsive", "accessibility", "performance")
    for name, views in low.items():
        assert {view for view in six if means[name][view] < 1.0} == views, (name, means[name])
    assert {means["a page that shows nothing"][view] for view in six} == {0.0}


def test_the_check_of_a_benchmark_prints_its_ladder_and_a_ladder_that_falls_fails(monkeypatch):
    class Ordered(type(load_benchmark("mini_math"))):
        name = "ordered"

        def ladder(self):
            return self.players_by_name

    right = lambda item, chat: item.reference  # noqa: E731
    wrong = lambda item, chat: ""  # noqa: E731
    benchmark = Ordered()
    benchmark.players_by_name = {"nobody": wrong, "one who knows": right}
    rungs = [check for check in check_benchmark(benchmark).checks if check.name.startswith("ladder")]
    assert [(check.name, check.ok, check.value) for check in rungs] == [
        ("ladder, 1: nobody", True, 0.0),
        ("ladder, 2: one who knows", True, 1.0),
    ]
    assert "answer_parsed 1.00" in rungs[1].detail
    for players in ({"knows": right, "nobody": wrong}, {"nobody": wrong, "nobody else": wrong}):
        benchmark.players_by_name = players
        checks = [check for check in check_benchmark(benchmark).checks if check.name.startswith("ladder")]
        assert any(check.ok is False for check in checks)
