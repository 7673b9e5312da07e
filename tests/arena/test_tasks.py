import pytest

from agent2.arena.tasks import Level, load_task, task_names
from agent2.benchmarks import BENCHMARKS
from agent2.errors import ConfigError
from agent2.records import Split


@pytest.mark.parametrize("name", task_names())
def test_every_packaged_task_is_complete(name):
    task = load_task(name)
    assert task.name == name
    assert task.benchmark in BENCHMARKS
    assert set(task.n_items) == set(Split)
    assert task.structural_requirement


def test_arithmetic_is_a_rule_based_reasoning_task_with_enough_private_items():
    task = load_task("arithmetic")
    assert task.level is Level.RULE_BASED
    assert task.n_items[Split.TEST_PRIVATE] >= 500


def test_an_unknown_task_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'arithmetic'"):
        load_task("arithmetics")


def test_a_users_own_task_is_read_from_its_file(tmp_path):
    source = (tmp_path / "mine.yaml").resolve()
    from importlib import resources

    text = (resources.files("agent2.arena.tasks") / "arithmetic.yaml").read_text()
    source.write_text(text.replace("name: arithmetic", "name: mine", 1))
    assert load_task(str(source)).name == "mine"
    source.write_text(text.replace("budget:", "budgett:"))
    with pytest.raises(
        ConfigError, match=r"mine\.yaml:\d+: unknown key 'budgett'; did you mean 'budget'|'budget' is missing"
    ):
        load_task(str(source))
