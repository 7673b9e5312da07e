"""Failures by class: every failure once, who says so, and what follows."""

import pytest
from msgspec import structs

from agent2.analysis.failures import failures_of
from agent2.contract.causes import UNLABELLED, Cause, FailureJudge, FailureRule
from agent2.errors import CardError, ConfigError, Fault
from agent2.records import StopReason
from agent2.scorers.failure_detectors import detected
from contract_card_builders import make_lost, make_scored, write_card


def by_label(report):
    return {failure.label: failure for failure in report.classes}


def cut_off(record):
    turn = structs.replace(record.rollout.turns[-1], stop_reason=StopReason.LENGTH)
    return structs.replace(record, rollout=structs.replace(record.rollout, turns=[turn]))


def test_each_class_has_its_share_pass_rate_cause_judge_and_examples(tmp_path):
    records = [make_scored(f"right-{n}") for n in range(4)]
    records += [make_scored(f"wrong-{n}", 0.0, labels=["gsm8k_wrong_final_answer"]) for n in range(3)]
    records += [make_scored("again", 0.0, labels=["gsm8k_wrong_final_answer", "repeated_tool_call"])]
    records += [make_scored("again-right", 1.0, labels=["repeated_tool_call"]), make_lost("lost")]
    report = failures_of(write_card(tmp_path / "card", records))
    assert (report.n_rollouts, report.n_missing, report.n_failures, report.n_unlabelled) == (10, 1, 4, 0)
    wrong, again = by_label(report)["gsm8k_wrong_final_answer"], by_label(report)["repeated_tool_call"]
    assert (wrong.n, wrong.share, wrong.pass_rate, wrong.cause) == (4, 1.0, 0.0, Cause.ALGORITHM)
    assert (again.n, again.share, again.pass_rate, again.n_rollouts) == (1, 0.25, 0.5, 2)
    assert wrong.is_generic and not again.is_generic and wrong.judge is FailureJudge.RULE
    assert [failure.item_id for failure in wrong.examples] == ["again", "wrong-0", "wrong-1"]
    # Counted first under the class that says more; these counts add up to the failures.
    assert (wrong.n_first, again.n_first) == (3, 1)
    assert [failure.item_id for failure in report.of_class("repeated_tool_call")] == ["again"]
    assert report.n_generic == 3


def test_failures_without_any_class_are_counted_and_can_be_had(tmp_path):
    report = failures_of(write_card(tmp_path / "card", [make_scored("odd", 0.25), make_scored("fine")]))
    assert (report.n_failures, report.n_unlabelled, report.classes) == (1, 1, ())
    assert report.of_class(UNLABELLED)[0].score == 0.25


def test_no_failures_and_nothing_but_failures(tmp_path):
    none = failures_of(write_card(tmp_path / "none", [make_scored("a"), make_scored("b")]))
    assert (none.n_failures, none.classes, none.failures) == (0, (), ())
    only = failures_of(write_card(tmp_path / "only", [make_scored(f"i{n}", 0.0, labels=["odd"]) for n in range(2)]))
    assert by_label(only)["odd"].share == 1.0 and by_label(only)["odd"].cause is None
    lost = failures_of(write_card(tmp_path / "lost", [make_lost("a", Fault.INFRASTRUCTURE)]))
    assert (lost.n_failures, lost.n_missing) == (0, 1)


LOOP = "the next step is to add the two numbers " * 12
PROSE = (
    "First we add the apples that Ann bought on Monday, which makes seven. Then Bob takes two of them home, and the "
    "rest is shared by three children, so each child gets one apple and two remain in the basket for tomorrow."
)


@pytest.mark.parametrize(
    ("label", "shows", "honest"),
    [
        ("repetition", LOOP, PROSE),
        (
            "refusal",
            "I'm sorry, but I can't help with that request.",
            "I can't find a train before nine; the 9:12 it is.",
        ),
        ("refusal", "As an AI language model, I cannot do that.", "The museum cannot provide parking."),
        ("refusal", "I apologize, I should not generate that.", "I should not have to say it, but Rome is in Italy."),
        (
            "refusal",
            "Unfortunately I do not have access to that article. " + "General tips are to read its abstract. " * 12,
            "As an AI, I do not have a job. However, here is a post that you can use: "
            + "I am glad to join you. " * 12,
        ),
        ("repetition", "".join(f"#### {number} " for number in range(40)), PROSE + " 7 - 2 = 5, 5 - 3 = 2."),
        ("language_switch", "The answer is 四十二个苹果和三个梨", "The answer is 42 µm (naïve estimate), x² + π"),
        ("empty_output", "  ", "0"),
    ],
)
def test_a_detector_finds_what_a_text_shows_and_leaves_honest_answers_alone(tmp_path, label, shows, honest):
    report = failures_of(
        write_card(tmp_path / "card", [make_scored("shows", 0.0, text=shows), make_scored("honest", 0.0, text=honest)])
    )
    found = by_label(report)[label]
    assert [failure.item_id for failure in found.examples] == ["shows"]
    assert found.judge is FailureJudge.DETECTOR and found.cause is not None


def test_an_answer_that_was_cut_off_is_truncated(tmp_path):
    report = failures_of(write_card(tmp_path / "card", [cut_off(make_scored("cut", 0.0)), make_scored("whole", 0.0)]))
    assert by_label(report)["truncated"].n == 1


def stored(text, prompt="What is the most important thing that happened in the town this week?", tokens=None):
    """An answer that was read from a file: nobody counted its tokens."""
    record = make_scored("stored", 0.0, text=text)
    asked = [structs.replace(record.rollout.prompt[0], content=prompt)]
    turns = [structs.replace(record.rollout.turns[-1], completion_tokens=tokens)]
    return structs.replace(record, rollout=structs.replace(record.rollout, prompt=asked, turns=turns))


def test_a_stored_answer_that_stops_within_a_sentence_reads_as_truncated():
    cut = f"{PROSE} They were told that the train would leave as soon as the"
    assert detected(stored(cut)) == ["truncated"]
    assert detected(stored(cut, tokens=80)) == [], "its tokens were counted, and it ended by itself"
    honest = [
        f"{PROSE} It did.",
        f"{PROSE}\n- apples and pears from the basket of the old man in town",
        "the answer is Rome",
    ]
    assert [detected(stored(answer)) for answer in honest] == [[], [], []]


def test_an_answer_in_another_language_of_the_same_script_is_a_switch():
    german = "Die wichtigste Nachricht der Woche ist, dass der Bahnhof nach drei Jahren wieder offen ist."
    english = "The most important news of the week is that the station is open again after three years."
    assert detected(stored(german)) == ["language_switch"]
    assert detected(stored(english)) == []
    assert detected(stored(german, prompt="What is the news of the week? Write the answer in German.")) == []
    assert (
        detected(stored("Anna Berger, Lena Huber, Ute Maier, Jan Weber, Max Koch", prompt="Name five of them.")) == []
    )


def test_a_language_that_was_asked_for_excuses_no_other_script():
    chinese = "今年公司将创造成千上万个工作岗位"
    assert detected(stored(chinese, prompt="Rewrite this in Arabic, no other language is allowed.")) == [
        "language_switch"
    ]
    assert detected(stored(chinese, prompt="Rewrite this in Chinese, no other language is allowed.")) == []


def test_a_language_that_was_asked_for_is_no_switch(tmp_path):
    record = make_scored("asked", 0.0, text="これは正しい答えです、ありがとう")
    prompt = [structs.replace(record.rollout.prompt[0], content="Translate into Japanese: this is right, thanks.")]
    asked = structs.replace(record, rollout=structs.replace(record.rollout, prompt=prompt))
    assert failures_of(write_card(tmp_path / "card", [asked])).classes == ()


def test_a_rewarded_wrong_answer_is_format_without_content(tmp_path):
    records = [make_scored("paid", 0.0, views={"reward": 0.9}), make_scored("unpaid", 0.0, views={"reward": 0.1})]
    found = by_label(failures_of(write_card(tmp_path / "card", records)))["format_without_content"]
    assert [failure.item_id for failure in found.examples] == ["paid"] and found.cause is Cause.REWARD


def test_a_suite_overrides_the_table(tmp_path):
    card = write_card(tmp_path / "card", [make_scored("a", 0.0, labels=["wrong_answer"])])
    own = failures_of(card, {"wrong_answer": FailureRule(cause="data", action="buy better questions")}).classes[0]
    assert (own.cause, own.action) == (Cause.DATA, "buy better questions")


def test_a_class_has_its_name_of_today_whatever_the_scorer_calls_it(tmp_path):
    records = [
        make_scored("a", 0.0, labels=["only_sample_tests_pass"]),
        make_scored("b", 0.0, labels=["visible_tests_only"]),
        make_scored("c", 0.0, labels=["mine_only_sample_tests_pass"]),
    ]
    report = failures_of(write_card(tmp_path / "card", records))
    assert {row.label: row.n for row in report.classes} == {"visible_tests_only": 2, "mine_visible_tests_only": 1}


def test_the_labels_of_a_judge_are_a_judges(tmp_path):
    records = [make_scored("a", 0.0, labels=["rubric_not_met"])]
    assert failures_of(write_card(tmp_path / "card", records, scorer="llm_judge-v1.1")).classes[0].judge == "judge"


def test_what_the_baseline_solved_is_a_lost_capability(tmp_path):
    wrong = {"labels": ["wrong_answer"]}
    write_card(
        tmp_path / "cards/baseline/fake-dev", [make_scored("kept"), make_scored("gone"), make_scored("new", 0.0)]
    )
    write_card(
        tmp_path / "cards/checkpoint/fake-dev",
        [make_scored("kept"), make_scored("gone", 0.0, **wrong), make_scored("new", 0.0, **wrong)],
        checkpoint="trained",
    )
    lost = by_label(failures_of(tmp_path))["capability_lost"]
    assert [failure.item_id for failure in lost.examples] == ["gone"]
    assert (lost.judge, lost.cause) == (FailureJudge.BASELINE, Cause.DATA)


def test_folders_without_a_finished_card_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no cards there"):
        failures_of(tmp_path)
    card = write_card(tmp_path / "card", [make_scored("a")])
    for file in card.iterdir():
        if file.name != "card.json":
            file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CardError):
        failures_of(card)
