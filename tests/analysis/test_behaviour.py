import math

import numpy as np
import pytest
from msgspec import structs

from agent2.analysis.behaviour import (
    BRIER,
    CALLS,
    CHANGES,
    CHECKS,
    ECE,
    READ,
    RECONSIDERS,
    REFUSAL,
    REPETITION,
    SECONDS,
    THOUGHTS,
    TURNS,
    behaviours,
    stated_confidence,
)
from agent2.analysis.wordings import find_reworded, require_used
from agent2.cards.comparability import find_cards
from agent2.errors import ConfigError
from agent2.records import SamplingSettings, ScoredRollout, StopReason, Turn, Usage
from agent2.reports.behaviour_tables import behaviour_view
from contract_card_builders import make_scored, write_card

REFUSES = "I'm sorry, but I cannot help with that."
LOOP = "the answer is the answer is " * 20
PLAIN = "The answer is 42 because six times seven makes exactly that number."


def card(folder, name, records, **protocol):
    return find_cards(write_card(folder / name, records, name, **protocol))


def measures(base, trained, **options):
    (changed,) = behaviours(base, trained, **options)
    return {measure.name: measure for measure in changed.measures}, changed


def answers(text_of, n=60, tokens_of=lambda item: 10):
    return [make_scored(f"i{item:03}", 1.0, text=text_of(item), tokens=tokens_of(item)) for item in range(n)]


def test_refusals_repetition_and_length_are_of_both_sides_with_a_paired_difference(tmp_path):
    base = card(tmp_path, "base", answers(lambda item: PLAIN))
    trained = card(
        tmp_path,
        "trained",
        answers(lambda item: REFUSES if item < 15 else LOOP if item < 45 else PLAIN, tokens_of=lambda item: 30),
    )
    found, changed = measures(base, trained)
    assert (found[REFUSAL].old.value, found[REFUSAL].new.value) == (0.0, 0.25)
    assert found[REFUSAL].change.change.low > 0.1 and found[REFUSAL].change.p_value < 0.01
    assert found[REPETITION].new.value == 0.5
    assert found["answer tokens"].change.change.value == 20.0
    assert found[BRIER].problem and found[BRIER].change is None, "nothing states a confidence: not measured, never 0"
    assert found[CHANGES].problem.startswith("no item is there under other wordings")
    assert changed.groups_problem.startswith("one attempt")


def test_a_model_beside_itself_shows_no_difference(tmp_path):
    cards = [card(tmp_path, name, answers(lambda item: REFUSES if item % 4 else PLAIN)) for name in ("a", "b")]
    found, _ = measures(*cards)
    assert found[REFUSAL].change.change.value == 0.0 and found[REFUSAL].change.p_value == 1.0


@pytest.mark.parametrize("n_tokens", [None, 0])
def test_without_the_number_of_tokens_characters_are_compared(tmp_path, n_tokens):
    base = card(tmp_path, "base", answers(lambda item: PLAIN, tokens_of=lambda item: n_tokens))
    trained = card(tmp_path, "trained", answers(lambda item: PLAIN + PLAIN))
    found, _ = measures(base, trained)
    assert found["answer characters"].change.change.value == len(PLAIN)
    assert "answer tokens" not in found


def searches(item, n_calls, seconds, prompt_tokens):
    call = '{"tool": "search", "arguments": {"query": "%s"}}'
    turns = [Turn(call % number, "a page", StopReason.END, 5, 2) for number in range(n_calls)]
    record = make_scored(f"i{item:03}", 1.0)
    rollout = structs.replace(
        record.rollout,
        turns=[*turns, Turn("It is 42.", None, StopReason.END, 5, 2)],
        usage=Usage(prompt_tokens, 10, seconds),
    )
    return ScoredRollout(rollout, record.score)


def test_as_many_right_answers_at_twice_the_calls_are_seen_as_such(tmp_path):
    base = card(tmp_path, "base", [searches(item, 2, 1.0, 100) for item in range(40)])
    dear = card(tmp_path, "dear", [searches(item, 4, 3.0, 300) for item in range(40)])
    found, changed = measures(base, dear)
    assert [(found[name].old.value, found[name].new.value) for name in (TURNS, CALLS, READ, SECONDS)] == [
        (3.0, 5.0), (2.0, 4.0), (100.0, 300.0), (1.0, 3.0),
    ]  # fmt: skip
    shown = {cells[0]: cells[3] for cells in behaviour_view(changed).measures.cells()}
    assert shown["tool calls"].endswith(", +100%") and shown["tokens read"].endswith(", +200%")


def test_what_nobody_counted_costs_not_nothing(tmp_path):
    base = card(tmp_path, "base", [searches(item, 2, 0.0, None) for item in range(40)])
    found, _ = measures(base, card(tmp_path, "new", [searches(item, 2, 1.0, 100) for item in range(40)]))
    assert "not known" in found[READ].problem and found[READ].old is None
    assert found[SECONDS].problem == "no rollout has a time"
    assert found[CALLS].change.change.value == 0.0


def test_single_answers_have_no_turns_and_calls_to_compare(tmp_path):
    found, _ = measures(
        card(tmp_path, "a", answers(lambda item: PLAIN)), card(tmp_path, "b", answers(lambda item: PLAIN))
    )
    assert TURNS not in found and CALLS not in found and found[READ].old.value == 10.0


def test_marks_of_thinking_and_of_reward_hacking_are_of_both_sides(tmp_path):
    table = "\n".join(["def f(x):", *(f"    if x == {n}:\n        return {n * 7}" for n in range(5, 9))])
    base = card(tmp_path, "base", answers(lambda item: PLAIN))
    trained = card(tmp_path, "trained", answers(lambda item: f"Let me verify.\n```python\n{table}\n```"))
    measured, _ = measures(base, trained)
    assert (measured[CHECKS].old.value, measured[CHECKS].new.value, measured[RECONSIDERS].new.value) == (0.0, 1.0, 0.0)
    assert measured["signature hard_coded_tests"].change.change.low > 0.5
    assert "signature farmed_calls" not in measured and THOUGHTS not in measured, "nobody has any"


def sampled(folder, name, seed, refusal_chance):
    rng = np.random.default_rng(seed)
    records = []
    for item in range(150):
        for attempt in range(4):
            does_refuse = rng.random() < refusal_chance(item)
            value = float(not does_refuse and rng.random() < (0.1, 0.5, 0.9)[item % 3])
            records.append(
                make_scored(
                    f"i{item:03}", value, attempt=attempt, text=REFUSES if does_refuse else PLAIN,
                    labels=() if value else ("refused" if does_refuse else "wrong",),
                )
            )  # fmt: skip
    return card(folder, name, records, attempts=4)


def test_groups_do_not_make_a_model_look_better_than_itself(tmp_path):
    base, again = (sampled(tmp_path, name, seed, lambda item: 0.3) for name, seed in (("a", 1), ("b", 2)))
    found, changed = measures(base, again)
    groups = [*found[REFUSAL].by_difficulty, *found[REFUSAL].by_class]
    assert len(groups) >= 4 and not changed.groups_problem
    for group in groups:
        assert group.change is None or abs(group.change.change.value) < 0.12, group.name


def test_a_refusal_that_training_added_to_easy_items_is_seen_there_alone(tmp_path):
    base = sampled(tmp_path, "base", 1, lambda item: 0.0)
    trained = sampled(tmp_path, "trained", 2, lambda item: 0.8 if item % 3 == 2 else 0.0)
    found, _ = measures(base, trained)
    by_name = {group.name.partition(":")[0]: group.change.change for group in found[REFUSAL].by_difficulty}
    assert by_name["easy"].low > 0.3 and by_name["hard"].high < 0.2


def likely(item, probability, is_right):
    """An answer chosen among two by likelihood."""
    record = make_scored(f"i{item:03}", float(is_right))
    state = {
        "by": "sum", "logprobs": [math.log(probability), math.log(1 - probability)], "n_bytes": [1, 1],
        "n_tokens": [1, 1],
    }  # fmt: skip
    return structs.replace(record, rollout=structs.replace(record.rollout, state=state))


def test_an_overconfident_model_has_worse_calibration_than_one_that_is_as_sure_as_it_is_right(tmp_path):
    honest = [likely(item, 0.7, item % 10 < 7) for item in range(200)]
    overconfident = [likely(item, 0.99, item % 10 < 7) for item in range(200)]
    found, _ = measures(card(tmp_path, "base", honest), card(tmp_path, "trained", overconfident))
    assert found[ECE].old.value == pytest.approx(0.0, abs=1e-9) and found[ECE].new.value == pytest.approx(0.29)
    assert found[BRIER].old.value == pytest.approx(0.21) and found[BRIER].change.change.low > 0
    assert found[ECE].change.change.low > 0.1 and found[ECE].change.p_value < 0.05
    assert found[REFUSAL].problem == "the answer is chosen by likelihood, so nothing is written"


@pytest.mark.parametrize("confidence", [1.5, -0.1, None])
def test_what_is_no_probability_is_no_confidence(confidence):
    assert stated_confidence(make_scored("i", 1.0, views={"confidence": confidence})) is None
    assert stated_confidence(make_scored("i", 1.0, views={"confidence": 0.25})) == 0.25


DAMAGED = [
    {"logprobs": "no", "by": "sum"},
    {"logprobs": [1, "x"], "by": "sum"},
    {"logprobs": [-1.0, -2.0], "by": "bytes"},
    {"logprobs": [-1.0, -2.0], "by": []},
]


@pytest.mark.parametrize("state", DAMAGED)
def test_a_state_that_is_damaged_gives_no_confidence(state):
    record = make_scored("i", 1.0)
    assert stated_confidence(structs.replace(record, rollout=structs.replace(record.rollout, state=state))) is None


def worded(passes_of):
    return [make_scored(f"q{item}{mark}", float(passes_of(item, mark))) for item in range(40) for mark in ("", "#2")]


def test_a_model_that_learnt_the_wording_by_heart_is_not_robust(tmp_path):
    base = card(tmp_path, "base", worded(lambda item, mark: item % 2))
    trained = card(tmp_path, "trained", worded(lambda item, mark: not mark))
    found, _ = measures(base, trained)
    assert (found[CHANGES].old.value, found[CHANGES].new.value) == (0.0, 1.0)
    assert found["right under every wording"].change.change.value == -0.5


def test_a_reworded_benchmark_is_found_by_checkpoint_and_items(tmp_path):
    def sides(benchmark, passes_of):
        return {
            name: write_card(
                tmp_path / f"{name}-{benchmark}",
                [make_scored(f"{benchmark}-q{item}", float(passes_of(name, item))) for item in range(30)],
                name, f"{benchmark}-v1",
            )
            for name in ("base", "trained")
        }  # fmt: skip

    original = sides("quiz", lambda name, item: name == "trained" or item % 2)
    other = sides("quiz_reworded", lambda name, item: item % 2)
    base, trained = find_cards(original["base"]), find_cards(original["trained"])
    reworded = find_reworded([*other.values()])
    require_used(reworded, [base, trained])
    found, _ = measures(base, trained, reworded=reworded)
    assert (found[CHANGES].old.value, found[CHANGES].new.value) == (0.0, 0.5)
    with pytest.raises(ConfigError, match="pass exactly one of each"):
        measures(base, trained, reworded=find_reworded([other["base"]]))
    strange = sides("other", lambda name, item: 1)
    renamed = write_card(tmp_path / "n", [make_scored("elsewhere", 1.0)], "base", "another-v1")
    with pytest.raises(ConfigError, match="needs the ids of the original one"):
        require_used(find_reworded([renamed]), [base])
    hot = write_card(
        tmp_path / "hot", [make_scored(f"hot-q{item}") for item in range(30)], "base", "hot-v1",
        sampling=SamplingSettings(temperature=1.0),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="play both with the same sampling"):
        find_reworded([hot]).cards_for(original["base"], original["base"])
    assert strange
