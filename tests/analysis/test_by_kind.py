import msgspec

from agent2.analysis.by_kind import NOT_STATED, scores_by_kind
from card_builders import make_record
from contract_card_builders import write_card


def of_kind(item, value, kind):
    record = make_record(item, value)
    state = {} if kind is None else {"task_type": kind}
    return msgspec.structs.replace(record, rollout=msgspec.structs.replace(record.rollout, state=state))


def test_each_kind_has_its_own_score_and_what_is_missing_is_no_zero(tmp_path):
    records = [of_kind("a", 1.0, "law"), of_kind("b", 0.0, "law"), of_kind("c", 1.0, "art"), of_kind("d", None, "art")]
    card = write_card(tmp_path / "card", [*records, of_kind("e", 0.0, None)])
    rows = {row.kind: row for row in scores_by_kind(card)}
    assert list(rows) == ["art", NOT_STATED, "law"]
    assert (rows["law"].score.value, rows["law"].n_items, rows["law"].n_missing) == (0.5, 2, 0)
    assert (rows["art"].score.value, rows["art"].n_missing) == (1.0, 1)


def test_items_of_one_kind_or_none_have_no_table(tmp_path):
    assert scores_by_kind(write_card(tmp_path / "one", [of_kind("a", 1.0, "law"), of_kind("b", 0.0, "law")])) == ()
    assert scores_by_kind(write_card(tmp_path / "none", [of_kind("a", 1.0, None)])) == ()
