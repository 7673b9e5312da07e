"""Grounding detectors on the hand-written cases of the benchmark script, and what they make of odd input."""

import importlib.util
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from agent2.records import Item, Message, Rollout, RolloutStatus, Split, StopReason, Turn, Usage
from agent2.scorers import load_scorer
from agent2.scorers.grounding import GroundingJudge
from agent2.scorers.grounding.claims import ClaimKind, GroundingContext, claims_of
from agent2.scorers.grounding.detectors import DETECTORS, findings_of
from agent2.scorers.grounding.episodes import read_episode

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "grounding.py"


def load_script():
    spec = importlib.util.spec_from_file_location("grounding_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()
CASES = script.read_cases()


def rollout_of(*lines):
    return script.episode_of("item", lines)[1]


def detected(*lines, item=None):
    return {finding.detector for finding in findings_of(read_episode(rollout_of(*lines)), item)}


def test_every_detector_has_ten_planted_cases_and_ten_near_misses():
    counts = {(case.detector, case.is_planted): 0 for case in CASES}
    for case in CASES:
        counts[case.detector, case.is_planted] += 1
    assert counts == {(name, planted): 10 for name in DETECTORS for planted in (True, False)}
    assert len(DETECTORS) >= 12


@pytest.mark.parametrize("figures", script.measure(CASES)[0], ids=lambda figures: figures.name)
def test_precision_and_recall_are_at_least_ninety_percent(figures):
    assert figures.precision >= 0.9 and figures.recall >= 0.9


def test_cases_that_were_written_afterwards_are_distinguished_as_well():
    figures, wrong = script.measure(script.read_cases(script.HELD_OUT))
    assert {row.name for row in figures if row.n_planted} <= set(DETECTORS)
    assert sum(row.n_planted for row in figures) == 65 and sum(row.n_near for row in figures) == 65
    assert len(wrong) <= 3


def test_an_episode_that_follows_what_it_saw_has_no_finding():
    assert not detected(
        "What do three lamps and one vase cost?",
        "> price {item: lamp, count: 3} = 21",
        "> price {item: vase, count: 1} = 5",
        "Three lamps cost 21 and one vase 5, 26 in total.",
    )


def test_one_unsupported_claim_is_followed_to_the_conclusion():
    rollout = rollout_of(
        "Weather in my town?",
        "> weather {city: Aldor} ! tool: no city",
        "> hour {place: Aldor} ! schema_error: no parameter",
        "The weather service is down. It is usually 18 degrees there.",
    )
    chains = [finding.why for finding in findings_of(read_episode(rollout)) if finding.detector == "cascade"]
    assert len(chains) == 1
    for link in ("invented_argument 'Aldor'", "weather failed", "blamed", "switched to hour", "'18'"):
        assert link in chains[0]


def test_an_error_message_that_repeats_the_argument_gives_it_no_ground():
    lines = ["Cancel it.", "> cancel {order: ORD-9} ! tool: no order 'ORD-9'", "There is no order ORD-9."]
    assert "invented_argument" in detected(*lines)
    assert "invented_number" in detected(*lines)


def test_what_the_user_says_in_between_is_given():
    lines = ["Cancel my order.", "- Which one?", "< ORD-9 please", "> cancel {order: ORD-9} *= done", "Cancelled."]
    assert not detected(*lines)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("1,200 people", "1200"),
        ("3 pm", "at 15:00"),
        ("May 20th, 2024", "2024-05-20"),
        ("about 2.4 km", "2.437"),
        ("7 in total", "3 and 4"),
        ("Anna Berg", "ANNA BERG'S house"),
        ("ORD-7", "order ord-7"),
        ("www.a.example/x", "https://a.example/x/"),
    ],
)
def test_a_claim_is_recognised_in_another_notation(text, source):
    context = GroundingContext()
    context.add(source)
    claims = claims_of(text)
    assert claims and all(context.supports(claim) for claim in claims)


@pytest.mark.parametrize(
    ("text", "source"),
    [("1,201 people", "1200"), ("4 pm", "at 15:00"), ("May 21", "2024-05-20"), ("2.5 km", "2.437"), ("80", "3 and 4")],
)
def test_another_value_is_not(text, source):
    context = GroundingContext()
    context.add(source)
    assert not all(context.supports(claim) for claim in claims_of(text))


def test_arithmetic_explains_only_what_is_shown_where_many_numbers_are_in_sight():
    context = GroundingContext()
    context.add(" ".join(str(number * number + 1000) for number in range(40)))
    total = "2002"  # 1001 + 1001, and many other pairs
    assert not all(context.supports(claim) for claim in claims_of(total))
    assert context.supports_number(2005.0, "2005", beside=[1001.0, 1004.0])


def test_a_polite_phrase_behind_a_claim_does_not_hide_it():
    for message in (
        "I have cancelled your order O-7, as you can see.",
        "I have cancelled order O-7, which should help.",
    ):
        assert "claimed_action" in detected("Cancel O-7.", "> order {number: O-7} = 'O-7: open'", message)
    assert not detected(
        "Cancel O-7.", "> order {number: O-7} = 'O-7: open'", "I could have cancelled O-7 if it were yours."
    )


def test_texts_give_the_claims_that_can_be_matched():
    kinds = {
        claim.text: claim.kind
        for claim in claims_of('Mia Holm paid $3.50 on May 2 for A-17: "all sales are final now".')
    }
    assert kinds["Mia Holm"] is ClaimKind.NAME and kinds["3.50"] is ClaimKind.NUMBER
    assert kinds["May 2"] is ClaimKind.DATE and kinds["A-17"] is ClaimKind.IDENTIFIER
    assert kinds["all sales are final now"] is ClaimKind.QUOTE


def test_what_is_said_through_a_tool_is_checked_like_words_and_the_reply_is_given():
    say = "> say {words: It is done. 93 euro will be paid back.} *= Thank you"
    lying = detected(
        "Cancel it.", "> say {words: 'Which order?'} *= O-7", "> order {number: O-7} = 'O-7: 26 euro'", say
    )
    assert lying == {"claimed_action", "invented_number"}
    sound = [
        "> say {words: 'Which order?'} *= O-7",
        "> cancel {number: O-7} *= '26 euro will be paid back'",
        "> say {words: It is done. 26 euro will be paid back.} *= Thank you",
    ]
    assert not detected("Cancel it.", *sound)


def test_a_sum_over_several_results_of_one_tool_follows():
    calls = [
        f"> get {{n: {n}}} = {{price: {price}, days: {price + 1}}}" for n, price in enumerate((117, 212, 305, 408, 533))
    ]
    assert not detected("What do 0 to 4 cost, 1, 2 and 3 between?", *calls, "They cost 1575 in total.")
    assert "invented_number" in detected("What do 0 to 4 cost, 1, 2 and 3 between?", *calls, "They cost 1577 in total.")


def plain_rollout(action, observation=None, answer=None, state=None):
    turns = [Turn(action, observation, StopReason.END, 0, 0)]
    prompt = [Message("user", "Which?")]
    return Rollout("i", 0, 0, RolloutStatus.COMPLETED, prompt, turns, answer, state or {}, Usage())


@pytest.mark.parametrize(
    "action",
    ['{"name": "price", "arguments": {"item": "sofa"}}', 'I look.\n{"tool": "price", "arguments": {"item": "sofa"}}'],
)
def test_calls_are_read_from_messages_where_the_world_recorded_none(action):
    episode = read_episode(plain_rollout(action, '{"error": "tool: no item"}'))
    assert [(call.name, call.error) for call in episode.calls] == [("price", "tool")]
    assert {finding.detector for finding in findings_of(episode)} == {"invented_argument"}


def test_a_rollout_without_tools_is_not_judged():
    rollout = plain_rollout("42", answer="42")
    assert read_episode(rollout) is None
    score = load_scorer("grounded").score(Item("i", Split.DEV, "Which?"), rollout)
    assert score.value is None and score.fault is not None


def test_the_scorer_gives_0_for_an_invention_and_1_for_doing_nothing():
    item = Item("item", Split.DEV, "Who?")
    scorer = load_scorer("grounded")
    lying = scorer.score(item, rollout_of("Who?", "> search {query: who} = no results", "It was Peter Dahl."))
    assert lying.value == 0.0 and "ungrounded_invented_name" in lying.labels
    assert set(lying.labels) <= scorer.emits.labels and set(lying.views) <= scorer.emits.views
    assert scorer.score(item, rollout_of("Who?", "> search {query: who} = no results", "unknown")).value == 1.0


@pytest.mark.parametrize(
    "calls",
    [
        [None, 3, {"name": "price"}],
        [{"turn": 0, "name": "price", "arguments": None, "result": {"a": [None, True]}, "error": None}],
        [{"turn": 0, "name": None, "arguments": {}, "result": None, "error": "malformed_call", "detail": "x"}],
        [{"turn": 5, "name": "a" * 5000, "arguments": {"x": "[" * 900}, "result": "{" * 900, "error": None}],
        [{"turn": 0, "name": "price", "arguments": {"x": "7"}, "result": "9" * 4000, "error": None}],
        [{"turn": 0, "name": "price", "arguments": {}, "result": f"[{10**400}, NaN, Infinity]", "error": None}],
    ],
)
def test_odd_records_are_read_without_an_error(calls):
    state = {"tool_calls": calls, "final": None, "answer": "\ud800 \x00 9"}
    findings = findings_of(read_episode(plain_rollout("x" * 1000 + " 9", answer=state["answer"], state=state)))
    assert all(finding.detector and len(finding.why) < 1000 for finding in findings)


@pytest.mark.parametrize("place", ["said", "told", "thought", "argument"])
@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{10 * k} " for k in range(9_000)),
        "".join(f"{chr(97 + k % 26)}{k}{k} " for k in range(6_000)),
        "".join(f"a{k}@b.org " for k in range(5_000)),
        "".join(f"May {k % 28 + 1}, {k} " for k in range(5_000)),
        *(
            piece * (60_000 // len(piece))
            for piece in ("\n", "a.", "a-", "1.", "Ab-", "#1 ", "The ", "(", "So Ann said. ")
        ),
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_long_message_is_checked_in_time_in_proportion_to_its_length(text, place):
    result = text if place == "told" else "Mira has 3 orders of 15.5."
    argument = text if place == "argument" else "Mira"
    call = {"turn": 0, "name": "orders", "arguments": {"of": argument}, "result": result, "error": None}
    thought, message = text if place == "thought" else "I look.", text if place == "said" else "Mira has 3 orders."
    turns = [Turn(f"{thought}\norders[Mira]", result, StopReason.END, 0, 0), Turn(message, None, StopReason.END, 0, 0)]
    rollout = structs.replace(plain_rollout("", state={"tool_calls": [call]}), turns=turns)
    before = time.process_time()
    findings_of(read_episode(rollout))
    assert time.process_time() - before < 5  # a tenth of it here; in quadratic time a minute


JUDGED = ("Is it free?", "> seat {number: 12} = taken", "You may sit down there.")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('It is taken. {"quote": "sit down there", "why": "it is taken", "verdict": 0}', ["sit down there"]),
        ('{"quote": "", "verdict": 1}', []),
        ('{"quote": "you can go", "verdict": 0}', "quotes nothing"),
        ('{"quote": "sit", "verdict": 7}', "not 0 or 1"),
        ("I think so.", "no verdict"),
    ],
)
def test_a_judge_counts_only_with_a_verdict_and_a_quotation(monkeypatch, reply, expected):
    from agent2.records import Completion
    from agent2.scorers.judge_model import JudgeAnswer

    judge = GroundingJudge("http://127.0.0.1:9/v1#none", cache=False)
    monkeypatch.setattr(
        judge.judge, "ask_for_verdicts", lambda prompts, _: [JudgeAnswer(Completion(reply), {}) for _ in prompts]
    )
    (result,) = judge.findings([read_episode(rollout_of(*JUDGED))])
    if isinstance(expected, str):
        assert expected in result
    else:
        assert [finding.what for finding in result] == expected


def test_sound_episodes_of_a_benchmark_have_no_finding_and_altered_ones_have():
    import numpy as np

    for item, rollout in script.oracle_rollouts("mini_apis", 8):
        assert script.detectors_of(rollout, item) == set()
        for alteration, expected, altered in script.alterations(item, rollout, np.random.default_rng(0)):
            if "letters" not in alteration:
                assert script.detectors_of(altered, item) & expected, alteration


def test_a_failed_call_alone_is_no_cascade():
    case = next(case for case in CASES if case.detector == "cascade" and case.is_planted)
    silent = structs.replace(
        case.rollout, turns=case.rollout.turns[:-1], answer=None, state={**case.rollout.state, "answer": None}
    )
    assert "cascade" not in {finding.detector for finding in findings_of(read_episode(silent))}


def test_a_sum_that_a_message_shows_with_its_parts_may_be_repeated_and_another_may_not():
    task, call = (
        "What do the two flights cost?",
        '> prices {"day": "today"} = [112, 104, 9, 8, 77, 61, 52, 43, 35, 26, 17, 201, 333]',
    )
    shown = "- The flights cost $112 and $104, $216 in total."
    assert "invented_number" not in detected(task, call, shown, "< Fine.", "Booked for $216.")
    assert "invented_number" in detected(task, call, shown, "< Fine.", "Booked for $218.")
