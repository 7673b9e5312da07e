import pytest

from agent2.arena.task_check import check_task, examples
from agent2.arena.tasks import SplitSizes, load_task


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def test_arithmetic_passes_every_check():
    findings = check_task(load_task("arithmetic"))
    assert len(findings) == 6
    assert [finding.name for finding in findings if not finding.ok] == []


def test_splits_that_share_a_prompt_are_found(monkeypatch):
    from agent2.arena import task_check
    from agent2.benchmarks.arithmetic.benchmark import Arithmetic

    class Leaky(Arithmetic):
        """Asks its dev items in the private split as well."""

        def items(self, split, n, secret):
            from agent2.records import Split

            if split is Split.TEST_PRIVATE:
                super().items(split, n, secret)
                return super().items(Split.DEV, n, None)
            return super().items(split, n, secret)

    task = load_task("arithmetic")
    task = task.model_copy(update={"n_items": SplitSizes(train=50, dev=50, test_public=50, test_private=50)})
    monkeypatch.setattr(task_check, "load_benchmark", lambda name: Leaky())
    failed = {finding.name for finding in check_task(task) if not finding.ok}
    assert failed == {"splits share no prompt", "test_private: needs the installation secret"}


def test_examples_are_visible_items():
    assert [item.split.value for item in examples(load_task("arithmetic"), 2)] == ["train", "train"]
