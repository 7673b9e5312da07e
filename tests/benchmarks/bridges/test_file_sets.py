import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.bridges.channel import BridgeFailed, BridgeRaised
from agent2.benchmarks.bridges.file_sets import BridgedSet
from agent2.environments.likelihood import LikelihoodEnvironment
from agent2.errors import ConfigError
from agent2.evaluation.suite_draft import draft_suite
from agent2.evaluation.suite_plan import open_contract
from agent2.plugins import relative_to
from agent2.records import Rollout, RolloutStatus, Split, Usage
from bridge_fakes import fake_channel, install_fake_bridge

SECRETS = [bytes([number]) * 32 for number in (1, 2)]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def opened(tmp_path):
    """Makes a benchmark of the fake task of a name."""
    install_fake_bridge("lm-eval")
    (tmp_path / "tasks").mkdir()
    benchmarks = []

    def make(task):
        path = tmp_path / "tasks" / f"{task}.yaml"
        path.write_text(f"task: {task}")
        benchmarks.append(BridgedSet("lm-eval", str(path), channel=fake_channel(tmp_path)))
        return benchmarks[-1]

    yield make
    for benchmark in benchmarks:
        benchmark.close()


def prompts(benchmark, split, secret):
    return {item.prompt for item in benchmark.items(split, benchmark.count(split, secret), secret)}


@pytest.mark.parametrize("task", ["sums", "with_dev"])
def test_hidden_items_are_halves_of_what_is_evaluated_and_no_split_shares_a_prompt(opened, task):
    benchmark = opened(task)
    for secret in SECRETS:
        parts = [prompts(benchmark, split, secret) for split in Split]
        assert len(set().union(*parts)) == sum(map(len, parts))
        n_public, n_private = len(parts[2]), len(parts[3])
        assert n_public - n_private in (0, 1) and (n_public + n_private == 60) == (task == "with_dev")
        assert len(parts[0]) == 10  # of 12, without the two that are evaluated
    assert prompts(benchmark, Split.DEV, None) == prompts(benchmark, Split.DEV, SECRETS[0])
    private = [prompts(benchmark, Split.TEST_PRIVATE, secret) for secret in SECRETS]
    assert private[0] != private[1]
    with pytest.raises(ConfigError, match="needs the installation secret"):
        benchmark.count(Split.TEST_PRIVATE, None)
    with pytest.raises(ConfigError, match="61 items of split 'train' were asked for, there are 10"):
        benchmark.items(Split.TRAIN, 61, None)


def test_a_message_or_its_likelihoods_are_what_the_package_judges(opened):
    sums, choice = opened("sums"), opened("choice")
    (item,) = sums.items(Split.DEV, 1, None)
    (question,) = choice.items(Split.DEV, 1, None)

    def value(benchmark, item, answer, **state):
        state = {"answer": answer, **state}
        rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, [], [], answer, state, Usage())
        return benchmark.scorer().score(item, rollout).value

    assert [value(sums, item, text) for text in (item.reference, "7")] == [1.0, 0.0]
    assert isinstance(choice.environment(), LikelihoodEnvironment) and choice.compares_answers
    for logprobs, expected in ([-1.0, -0.5], 1.0), ([-0.5, -1.0], 0.0):
        assert value(choice, question, "A", logprobs=logprobs, is_greedy=[False, False]) == expected


def test_a_task_that_the_package_refuses_and_pages_without_items_are_one_clear_error(opened):
    with pytest.raises(BridgeRaised, match="the task has no test split"):
        opened("broken").items(Split.DEV, 1, None)
    with pytest.raises(BridgeFailed, match=r"gave \[\] as items of empty_pages"):
        opened("empty_pages").items(Split.DEV, 1, None)


def test_the_messages_of_a_chat_are_shown_and_half_of_one_is_an_error(opened):
    chat = opened("chat")
    (item,) = chat.items(Split.DEV, 1, None)
    world = chat.environment()
    assert [(message.role, message.text) for message in world.reset(item, 0)] == [("user", item.prompt)]
    assert chat.environment_version().startswith("chat-v")
    with pytest.raises(BridgeFailed, match="as messages of half_a_chat"):
        opened("half_a_chat").items(Split.DEV, 1, None)


@pytest.mark.parametrize("bridge", ["inspect", "verifiers"])
def test_a_task_in_a_python_file_and_one_of_the_package_by_name(tmp_path, bridge):
    install_fake_bridge(bridge)
    (tmp_path / "sums.py").write_text("")
    one, whole, named = (load_benchmark(f"{bridge}:{name}") for name in ("./sums.py@easy", "sums.py", "sums"))
    assert [benchmark.name for benchmark in (one, whole, named)] == [
        f"{bridge}.sums.easy",
        f"{bridge}.sums",
        f"{bridge}.sums",
    ]
    assert whole.version != named.version and load_benchmark(f"{bridge}.sums").version == named.version
    assert relative_to(f"{bridge}:./sums.py@easy", tmp_path) == f"{bridge}:{tmp_path}/sums.py@easy"
    with pytest.raises(ConfigError, match=f"unknown name of bridge {bridge} 'sum'; did you mean 'sums'"):
        load_benchmark(f"{bridge}:sum")
    with pytest.raises(ConfigError, match="rename it"):
        load_benchmark(f"{bridge}:./sums.py@../easy")


def test_the_version_changes_with_every_file_of_the_folder(opened, tmp_path):
    first = opened("sums").version
    assert opened("sums").version == first
    (tmp_path / "tasks" / "data.jsonl").write_text("{}")
    assert opened("sums").version != first


@pytest.mark.parametrize("path", ["tasks", "tasks/none.yaml", "sums"])
def test_what_is_no_tasks_file_is_refused(opened, path):
    opened("sums")
    with pytest.raises(ConfigError, match=r"is no task's file; name one as lm-eval:FOLDER/TASK\.yaml"):
        load_benchmark(f"lm-eval:{path}")


def test_a_file_that_is_not_installed_behind_a_bridge_says_what_to_type(tmp_path):
    with pytest.raises(ConfigError, match="bridge lm-eval is not installed; agent2 benchmarks install lm-eval"):
        open_contract("lm-eval:tasks/sums.yaml")
    with pytest.raises(ConfigError, match="bridge lm-eval is not installed"):
        draft_suite(["lm-eval:tasks/sums.yaml"], tmp_path / "suite.yaml")
