import pytest

from agent2.arena.spec import SUBCATEGORIES, Level
from agent2.arena.tasks import load_task, task_names
from agent2.benchmarks import BENCHMARKS, task_files
from agent2.errors import ConfigError
from agent2.records import Split


@pytest.mark.parametrize("name", task_names())
def test_every_packaged_task_is_complete(name):
    task = load_task(name)
    assert task.name == name
    assert task.benchmark in BENCHMARKS
    assert all(task.n_items[split] >= 1 for split in Split)
    assert task.structural_requirement
    assert task.subcategory in SUBCATEGORIES[task.category]


def test_arithmetic_is_a_rule_based_reasoning_task_with_enough_private_items():
    task = load_task("arithmetic")
    assert task.level is Level.RULE_BASED
    assert task.n_items[Split.TEST_PRIVATE] >= 500


def test_an_unknown_task_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'arithmetic'"):
        load_task("arithmetics")


def test_a_users_own_task_is_read_from_its_file(tmp_path):
    source = (tmp_path / "mine.yaml").resolve()
    text = task_files()["arithmetic"].read_text()
    source.write_text(text.replace("name: arithmetic", "name: mine", 1))
    assert load_task(str(source)).name == "mine"
    source.write_text(text.replace("budget:", "budgett:"))
    with pytest.raises(
        ConfigError, match=r"mine\.yaml:\d+: unknown key 'budgett'; did you mean 'budget'|'budget' is missing"
    ):
        load_task(str(source))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("  dev: 200", "  dev: -1", r"n_items\.dev: .*greater than or equal to 1 \(got -1\)"),
        ("  dev: 200", "  dve: 200", r"unknown key 'n_items\.dve'; did you mean 'dev'\?"),
        ("  dev: 200\n", "", r"key 'n_items\.dev' is missing; add it"),
        ("name: arithmetic", "name: a/b", r"name: .*pattern"),
        ("level: 1", "levl: 1", r":\d+: unknown key 'levl'; did you mean 'level'\?"),
    ],
)
def test_a_wrong_value_in_a_task_is_named_with_its_line(tmp_path, old, new, sentence):
    source = tmp_path / "mine.yaml"
    text = task_files()["arithmetic"].read_text()
    assert old in text
    source.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=sentence):
        load_task(str(source))
