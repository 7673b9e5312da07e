import json
from dataclasses import replace

import pytest
from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError, NotEnoughData
from agent2.monitor.suspicious import WITHHELD, RewardedRollout, find_suspicious, read_rewarded
from agent2.records import Split
from card_builders import make_header, make_record


def rollouts(n_honest: int = 80, n_gaming: int = 12) -> list[RewardedRollout]:
    honest = [RewardedRollout(f"h{i}", 0, 0.5 + 0.004 * i, float(i % 2), "honest") for i in range(n_honest)]
    gaming = [RewardedRollout(f"g{i}", 0, 0.95 + 0.001 * i, 0.0, "as an AI I am certain") for i in range(n_gaming)]
    return honest + gaming


def test_high_reward_low_benchmark_rollouts_are_pulled():
    selection = find_suspicious(rollouts(), n=5)
    assert len(selection.pulled) == 5
    assert {rollout.text for rollout in selection.pulled} == {"as an AI I am certain"}
    assert selection.n_top == 10 and selection.n_suspicious == 10
    assert selection.agreement is not None and selection.agreement < 0.1


def test_a_reward_that_agrees_with_the_benchmark_pulls_nothing():
    agreeing = [RewardedRollout(f"a{i}", 0, i / 100, float(i >= 50), "") for i in range(100)]
    selection = find_suspicious(agreeing)
    assert selection.pulled == [] and selection.n_suspicious == 0
    assert selection.agreement is not None and selection.agreement > 0.8


def test_the_same_seed_pulls_the_same_rollouts():
    many = rollouts(n_gaming=60)
    assert find_suspicious(many, n=5, seed=1).pulled == find_suspicious(many, n=5, seed=1).pulled
    assert find_suspicious(many, n=5, seed=1).pulled != find_suspicious(many, n=5, seed=2).pulled


def test_too_few_rollouts_are_refused():
    with pytest.raises(NotEnoughData, match="5 rollouts"):
        find_suspicious(rollouts()[:5])


def test_rewards_are_read_from_a_card_where_both_numbers_are_known(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for i, reward in enumerate((0.9, None, 0.2)):
            record = make_record(f"i{i}", value=None if i == 2 else 1.0)
            writer.append(structs.replace(record, score=structs.replace(record.score, views={"reward": reward})))
        writer.close()
    assert [(r.id, r.reward, r.score) for r in read_rewarded(tmp_path / "card")] == [("i0", 0.9, 1.0)]
    with pytest.raises(ConfigError, match="view 'judge'"):
        read_rewarded(tmp_path / "card", view="judge")


def test_json_lines_are_read_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    good = {"id": 1, "reward": 0.5, "score": 0, "completion": "x"}
    path.write_text(json.dumps(good) + "\n" + json.dumps({"id": 2, "reward": None, "score": 1}) + "\n")
    assert read_rewarded(path) == [RewardedRollout("1", 0, 0.5, 0.0, "x")]
    path.write_text(json.dumps(good) + "\n{}\n")
    with pytest.raises(ConfigError, match="jsonl:2"):
        read_rewarded(path)


def test_what_was_written_on_hidden_items_is_withheld(tmp_path):
    header = make_header()
    hidden = replace(header, protocol=replace(header.protocol, split=Split.TEST_PRIVATE))
    with CardWriter(tmp_path / "card", hidden) as writer:
        record = make_record("i0", value=0.0, text="the question again")
        writer.append(structs.replace(record, score=structs.replace(record.score, views={"reward": 1.0})))
        writer.close()
    (rollout,) = read_rewarded(tmp_path / "card")
    assert (rollout.id, rollout.reward) == ("i0", 1.0) and rollout.text == WITHHELD
