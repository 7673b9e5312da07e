from pathlib import Path

from agent2.arena.analysis.result import NO_KIND, read_by_type
from agent2.arena.trial_folder import TrialPaths
from agent2.cards.writer import CardWriter
from agent2.errors import Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout, Split, Usage
from card_builders import make_header


def record(item: str, value: float | None, state: dict) -> ScoredRollout:
    fault = Fault.ENVIRONMENT if value is None else None
    status = RolloutStatus.FAILED if fault else RolloutStatus.COMPLETED
    rollout = Rollout(item, 0, 0, status, (), (), None, state, Usage(), fault)
    return ScoredRollout(rollout, Score(value, "a test", fault))


def write_card(root: Path, model: str, records: list[ScoredRollout]) -> TrialPaths:
    paths = TrialPaths(root)
    card = paths.card(model, Split.TEST_PRIVATE)
    card.parent.mkdir(parents=True, exist_ok=True)
    with CardWriter(card, make_header(planned_rollouts=len(records))) as writer:
        for record in records:
            writer.append(record)
        writer.close()
    return paths


HEAT, PICK = {"task_type": "heat"}, {"task_type": "pick"}


def test_base_and_final_are_told_by_kind(tmp_path):
    write_card(tmp_path, "base", [record("a", 0.0, HEAT), record("b", 1.0, HEAT), record("c", 0.0, PICK)])
    paths = write_card(tmp_path, "final", [record("a", 1.0, HEAT), record("b", 1.0, HEAT), record("c", 0.0, PICK)])
    heat, pick = read_by_type(paths)
    assert (heat.task_type, heat.base.value, heat.final.value, heat.base.n) == ("heat", 0.5, 1.0, 2)
    assert (pick.task_type, pick.base.value, pick.final.value) == ("pick", 0.0, 0.0)


def test_without_a_final_card_the_base_stands_alone(tmp_path):
    paths = write_card(tmp_path, "base", [record("a", 1.0, HEAT)])
    (heat,) = read_by_type(paths)
    assert heat.base.value == 1.0
    assert heat.final is None


def test_a_lost_rollout_is_missing_under_the_kind_that_its_item_has_on_the_other_card(tmp_path):
    write_card(tmp_path, "base", [record("a", 1.0, HEAT), record("b", 0.0, HEAT)])
    paths = write_card(tmp_path, "final", [record("a", None, {}), record("b", 1.0, HEAT)])
    (heat,) = read_by_type(paths)
    assert (heat.final.value, heat.final.n, heat.final.n_missing) == (1.0, 1, 1)


def test_an_item_whose_kind_nobody_told_has_a_row_of_its_own(tmp_path):
    paths = write_card(tmp_path, "base", [record("a", 1.0, HEAT), record("b", 0.0, {})])
    assert [row.task_type for row in read_by_type(paths)] == ["heat", NO_KIND]


def test_items_without_kinds_have_no_table(tmp_path):
    assert read_by_type(write_card(tmp_path, "base", [record("a", 1.0, {"answer": "4"})])) == ()
    assert read_by_type(TrialPaths(tmp_path / "nowhere")) == ()
