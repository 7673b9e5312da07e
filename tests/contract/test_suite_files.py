import multiprocessing
import stat

import pytest

from agent2.contract.suite import Suite
from agent2.contract.suite_files import freeze, frozen_text, load_suite, open_suite, suite_names
from agent2.errors import ConfigError


@pytest.fixture
def suite():
    return load_suite("llm_core_regression_v1")


def changed(suite, **values):
    return Suite.model_validate(suite.model_dump(mode="json") | values)


def test_the_packaged_suites_are_those_of_the_sources_and_five_that_run_here():
    assert suite_names() == [
        "agent_tool_regression_episodes",
        "agent_tool_regression_files",
        "agent_tool_regression_mini",
        "agent_tool_regression_offline",
        "agent_tool_regression_v1",
        "llm_core_regression_mini",
        "llm_core_regression_v1",
        "post_training_protocol",
        "research_regression_mini",
        "vlm_reasoning_regression_mini",
        "vlm_reasoning_regression_v1",
    ]


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(
        ConfigError, match="unknown suite 'llm_core_regresion_v1'; did you mean 'llm_core_regression_v1'"
    ):
        load_suite("llm_core_regresion_v1")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_suite(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("name", suite_names())
def test_a_frozen_suite_reads_back_equal_with_nothing_left_to_fill_in(name, tmp_path):
    suite = load_suite(name)
    path = freeze(suite, tmp_path)
    assert path.name == f"{suite.id}.suite.yaml"
    again = open_suite(str(path))
    assert again.suite == suite and again.suite.digest == suite.digest
    assert again.notes == () and again.defaults == ()
    assert f"# digest: {suite.digest}" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_freezing_again_changes_nothing(suite, tmp_path):
    path = freeze(suite, tmp_path)
    before = path.stat().st_mtime_ns
    assert freeze(changed(suite, model="a later checkpoint"), tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_frozen_version_is_never_replaced_by_other_content(suite, tmp_path):
    path = freeze(suite, tmp_path)
    text = path.read_text()
    with pytest.raises(ConfigError, match=r"version 1\.0 of llm_core_regression is frozen .*; give the changed suite"):
        freeze(changed(suite, description="other words"), tmp_path)
    assert path.read_text() == text
    assert freeze(changed(suite, description="other words", version="1.1"), tmp_path) != path


def test_a_frozen_suite_that_was_edited_is_refused(suite, tmp_path):
    path = freeze(suite, tmp_path)
    path.write_text(path.read_text().replace("max_rise: 0.2", "max_rise: 0.9"))
    with pytest.raises(ConfigError, match=r"the suite was frozen with digest .* its content now has"):
        load_suite(str(path))


def test_a_frozen_suite_takes_nothing_from_templates(suite, tmp_path):
    fewer = changed(suite, failure_taxonomy={"refusal": "safety"})
    again = load_suite(str(freeze(fewer, tmp_path)))
    assert list(again.failure_taxonomy) == ["refusal"]


def test_equal_suites_freeze_to_equal_bytes(suite):
    assert frozen_text(suite) == frozen_text(load_suite("llm_core_regression_v1"))


def _freeze_described(arguments):
    folder, description = arguments
    try:
        freeze(changed(load_suite("llm_core_regression_v1"), description=description), folder)
    except ConfigError:
        return None
    return description


@pytest.mark.slow
def test_of_two_that_freeze_one_version_at_once_one_wins(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        won = [
            description
            for description in pool.map(_freeze_described, [(tmp_path, "first"), (tmp_path, "second")])
            if description
        ]
    assert len(won) == 1
    (path,) = tmp_path.iterdir()
    assert load_suite(str(path)).description == won[0]


def test_a_file_or_folder_that_is_no_suite_is_answered_with_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.csv").write_text("question,answer\n1,1\n")
    (tmp_path / "card").mkdir()
    (tmp_path / "llm_core_regression_mini").mkdir()
    with pytest.raises(ConfigError, match=r"^questions\.csv: is a file, and no suite; .*agent2 benchmarks new FILE"):
        load_suite("questions.csv")
    with pytest.raises(ConfigError, match=r"^card: is a folder, and no suite; .*agent2 suite new BENCHMARK"):
        load_suite("card")
    assert load_suite("llm_core_regression_mini").name == "llm_core_regression_mini"


def test_an_override_reaches_an_entry_of_the_benchmarks():
    suite = load_suite("llm_core_regression_mini", ["benchmarks.mini_math.n_items=7"])
    assert {entry.name: entry.n_items for entry in suite.benchmarks} == {
        "mini_knowledge": 200,
        "mini_math": 7,
        "mini_ifeval": 200,
    }
    with pytest.raises(ConfigError, match=r"'benchmarks' is a list; .*benchmarks\.mini_math\.KEY"):
        load_suite("llm_core_regression_mini", ["benchmarks.mini_maths.n_items=7"])
