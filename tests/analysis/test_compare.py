import pytest

from agent2.analysis.compare import Outcome, compare
from agent2.cards.comparability import BASELINE, IncomparableError, find_cards
from agent2.errors import ConfigError
from agent2.stats.comparisons import holm
from contract_card_builders import make_scored, verdicts, write_card

BASE = "1" * 100 + "0" * 100
BETTER = "1" * 150 + "0" * 50
WORSE = "1" * 60 + "0" * 140
SAME = "1" * 99 + "01" + "0" * 99


def card_set(tmp_path, name, pattern, **protocol):
    return find_cards(write_card(tmp_path / name, verdicts(pattern), name, **protocol))


def test_many_candidates_are_compared_with_one_baseline_and_corrected_together(tmp_path):
    base = card_set(tmp_path, "base", BASE)
    comparison = compare(
        base, [card_set(tmp_path, *pair) for pair in (("up", BETTER), ("down", WORSE), ("flat", SAME))]
    )
    assert [row.outcome for row in comparison.rows] == [Outcome.BETTER, Outcome.WORSE, Outcome.UNCLEAR]
    assert comparison.n_family == 3
    raw = [row.score.paired.p_value for row in comparison.rows]
    assert [row.p_corrected for row in comparison.rows] == list(holm(raw))
    assert comparison.rows[0].score.values() == (0.5, 0.75)
    assert comparison.rows[0].score.paired.change.low > 0.15


def test_a_difference_that_is_only_significant_alone_is_not_shown_among_many(tmp_path):
    base = card_set(tmp_path, "base", "0" * 200)
    close = "1" * 7 + "0" * 193
    alone = compare(base, [card_set(tmp_path, "one", close)])
    assert alone.rows[0].outcome is Outcome.BETTER
    many = [card_set(tmp_path, f"c{place}", close) for place in range(6)]
    assert {row.outcome for row in compare(base, many).rows} == {Outcome.UNCLEAR}


def test_a_gain_within_the_noise_floor_is_no_gain(tmp_path):
    def sampled(name, extra):
        records = []
        for item in range(300):
            for attempt in range(2):
                solved = (item + attempt) % 2 == 0 or (attempt == 0 and item < extra)
                records.append(make_scored(f"i{item}", float(solved), attempt=attempt))
        return find_cards(write_card(tmp_path / name, records, name, attempts=2))

    row = compare(sampled("base", 0), [sampled("new", 40)]).rows[0]
    assert row.score.noise > row.score.paired.change.value > 0
    assert row.p_corrected < 0.05
    assert (row.outcome, row.why) == (Outcome.UNCLEAR, "it is within the noise band")


def test_the_cost_ratio_is_tokens_of_a_rollout(tmp_path):
    cheap = find_cards(write_card(tmp_path / "a", [make_scored("i", tokens=10), make_scored("j", tokens=10)], "a"))
    dear = find_cards(write_card(tmp_path / "b", [make_scored("i", tokens=30), make_scored("j", tokens=30)], "b"))
    assert compare(cheap, [dear]).rows[0].cost_ratio == pytest.approx(2.0)


def test_missing_scores_are_counted_on_their_side(tmp_path):
    row = compare(card_set(tmp_path, "a", "11-0"), [card_set(tmp_path, "b", "1-10")]).rows[0]
    assert (row.score.paired.change.n, row.score.n_missing_old, row.score.n_missing_new) == (2, 1, 1)


def test_nothing_scored_on_both_sides_is_no_data(tmp_path):
    comparison = compare(card_set(tmp_path, "a", "1-"), [card_set(tmp_path, "b", "-1")])
    assert (comparison.rows[0].outcome, comparison.rows[0].p_corrected, comparison.n_family) == (
        Outcome.NO_DATA,
        None,
        0,
    )


def test_cards_of_another_protocol_are_refused_and_the_field_is_named(tmp_path):
    with pytest.raises(IncomparableError, match="dtype 'float32' against 'bfloat16'"):
        compare(card_set(tmp_path, "a", "11"), [card_set(tmp_path, "b", "11", dtype="bfloat16")])


def test_nothing_in_common_is_an_error(tmp_path):
    base = card_set(tmp_path, "a", "11")
    with pytest.raises(ConfigError, match="nothing is in both: evaluate both on the same split"):
        compare(base, [card_set(tmp_path, "b", "11", benchmark="other-v1")])
    with pytest.raises(ConfigError, match="name at least one candidate"):
        compare(base, [])


def test_cards_are_found_in_a_card_a_folder_and_an_evaluation(tmp_path):
    for side, name in (("baseline", "sft"), ("checkpoint", "rl")):
        for benchmark in ("b-v1", "a-v1"):
            write_card(tmp_path / "out" / "cards" / side / benchmark, verdicts("10"), name, benchmark)
    checkpoint, baseline = find_cards(tmp_path / "out"), find_cards(tmp_path / "out", BASELINE)
    assert (checkpoint.name, baseline.name) == ("rl", "sft")
    assert list(checkpoint.cards) == ["a-v1 / dev", "b-v1 / dev"]
    assert find_cards(tmp_path / "out" / "cards" / "baseline").name == "sft"
    assert list(find_cards(tmp_path / "out" / "cards" / "baseline" / "a-v1").cards) == ["a-v1 / dev"]


def test_a_folder_without_cards_or_with_those_of_several_checkpoints_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no cards there"):
        find_cards(tmp_path)
    write_card(tmp_path / "a", verdicts("1"), "one", "a-v1")
    write_card(tmp_path / "b", verdicts("1"), "two", "b-v1")
    with pytest.raises(ConfigError, match="several checkpoints"):
        find_cards(tmp_path)


def test_of_a_first_look_or_an_unfinished_evaluation_the_refusal_names_the_way_on(tmp_path):
    begun, look = tmp_path / "begun", tmp_path / "look"
    (begun / "cards" / "checkpoint" / "sums-dev").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no card is finished yet; resume the evaluation with the same command"):
        find_cards(begun)
    card = look / "cards" / "sums-v1" / "sft" / "sums-dev"
    write_card(card, verdicts("1"))
    with pytest.raises(ConfigError, match="first look") as caught:
        find_cards(look)
    assert str(card) in str(caught.value) and find_cards(card).cards


def test_two_cards_of_one_benchmark_in_a_folder_are_refused(tmp_path):
    write_card(tmp_path / "a", verdicts("1"))
    write_card(tmp_path / "b", verdicts("1"))
    with pytest.raises(ConfigError, match="both of fake-v1 / dev"):
        find_cards(tmp_path)
