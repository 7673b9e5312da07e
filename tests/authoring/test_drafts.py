"""Task cards drafted from failures: what becomes one, and what never does."""

import json

import pytest
from msgspec import structs

from agent2.authoring.drafts import draft_cards
from agent2.authoring.task_cards import read_cards, write_cards
from agent2.errors import ConfigError
from agent2.records import Message, Split
from contract_card_builders import make_scored, write_card


def asked(item, *messages, value=0.0, labels=(), attempt=0, n_turns=1):
    """A rollout at an item that begins with these messages: role and text."""
    record = make_scored(item, value, labels=labels, attempt=attempt)
    prompt = [Message(role, text) for role, text in messages]
    return structs.replace(
        record, rollout=structs.replace(record.rollout, prompt=prompt, turns=list(record.rollout.turns) * n_turns)
    )


def evaluated(tmp_path, records, keys=None, **protocol):
    """A folder with one card and the keys of its items."""
    write_card(tmp_path / "ev" / "card", records, **{"scorer": "exact-v1.0", **protocol})
    (tmp_path / "ev" / "references.json").write_text(json.dumps({"fake": keys or {}}))
    return tmp_path / "ev"


def test_a_failed_item_becomes_a_card_without_personal_data(tmp_path):
    records = [
        asked("a", ("user", "What does anna@x.org pay for 3 lamps at 19?"), labels=["wrong_answer"]),
        asked("b", ("system", "Be brief."), ("user", "Whose mail is first, a@x.org or b@x.org?")),
        asked("c", ("user", "What is 2 + 2?"), value=1.0),
    ]
    drafts = draft_cards(evaluated(tmp_path, records, {"a": "57", "b": "b@x.org", "c": "4"}))
    assert (drafts.n_failed, drafts.unanswered, drafts.left_out) == (2, (), {})
    assert drafts.redacted == {"email": 3}
    first, second = drafts.cards
    assert (first.prompt, first.answer) == ("What does [email 1] pay for 3 lamps at 19?", "57")
    assert (first.tags, first.split, first.success_verifier.type) == (["wrong_answer", "redacted"], "dev", "exact")
    assert second.prompt.startswith("Be brief.\n\nWhose") and second.answer == "[email 2]"
    assert "x.org" not in json.dumps([card.row for card in drafts.cards])
    write_cards(tmp_path / "cards.jsonl", drafts.cards)
    assert read_cards(tmp_path / "cards.jsonl") == list(drafts.cards)


def test_without_a_key_a_draft_waits_for_one(tmp_path):
    folder = evaluated(tmp_path, [asked("a", ("user", "Why?"))])
    drafts = draft_cards(folder, split="train")
    assert drafts.cards == () and [row["answer"] for row in drafts.unanswered] == [""]
    (tmp_path / "cards.jsonl").write_text(json.dumps(drafts.unanswered[0]) + "\n")
    with pytest.raises(ConfigError, match="compares with an answer, and there is none"):
        read_cards(tmp_path / "cards.jsonl")
    (tmp_path / "cards.jsonl").write_text(json.dumps({**drafts.unanswered[0], "answer": "So."}) + "\n")
    assert read_cards(tmp_path / "cards.jsonl")[0].split == "train"


@pytest.mark.parametrize("split", [Split.TEST_PUBLIC, Split.TEST_PRIVATE])
def test_a_hidden_item_never_becomes_a_draft(tmp_path, split):
    drafts = draft_cards(evaluated(tmp_path, [asked("a", ("user", "Secret?"))], {"a": "1"}, split=split))
    assert (drafts.cards, drafts.unanswered) == ((), ())
    assert list(drafts.left_out.values()) == [1] and "hidden" in next(iter(drafts.left_out))


@pytest.mark.parametrize(
    ("record", "scorer", "reason"),
    [
        (asked("a", ("user", "Go."), n_turns=2), "exact-v1.0", "several turns"),
        (asked("a", ("user", "Go."), ("assistant", "Yes."), ("user", "On.")), "exact-v1.0", "a conversation"),
        (asked("a", ("user", "Go.")), "python_tests-v1.0", "judged by python_tests"),
        (asked("a", ("user", "Which? A. one B. two")), "choice-v1.0", "options could not be read"),
        (asked("a", ("user", "Which?\nA. one\nC. two")), "choice-v1.0", "options could not be read"),
        (asked("a", ("user", "A. one\nB. two")), "choice-v1.0", "options could not be read"),
    ],
)
def test_what_no_card_can_ask_is_counted_with_the_reason(tmp_path, record, scorer, reason):
    drafts = draft_cards(evaluated(tmp_path, [record], {"a": "A"}, scorer=scorer))
    assert drafts.cards == () and list(drafts.left_out.values()) == [1]
    assert reason in next(iter(drafts.left_out))


def test_options_leave_the_prompt_and_keep_their_order(tmp_path):
    records = [asked("a", ("user", "Which is warm?\n\nA. ice\nB. (b) fire\nC) snow"))]
    (card,) = draft_cards(evaluated(tmp_path, records, {"a": "B"}, scorer="choice-v2.0")).cards
    assert (card.prompt, card.options, card.answer) == ("Which is warm?", ["ice", "(b) fire", "snow"], "B")
    write_cards(tmp_path / "cards.jsonl", [card])
    assert read_cards(tmp_path / "cards.jsonl") == [card]


def test_the_same_question_is_drafted_once_and_attempts_say_how_hard_it_is(tmp_path):
    records = [
        asked("a", ("user", "Who, a@x.org?"), attempt=0),
        asked("a", ("user", "Who, a@x.org?"), attempt=1, value=1.0),
        asked("b", ("user", "Who, b@x.org?")),
        asked("c", ("user", "How?")),
    ]
    drafts = draft_cards(evaluated(tmp_path, records, {"a": "I", "b": "I", "c": "so"}))
    assert [(card.prompt, card.difficulty) for card in drafts.cards] == [
        ("Who, [email 1]?", "medium"),
        ("How?", "hard"),
    ]
    assert drafts.left_out == {"asks what another draft asks": 1}


def test_a_class_or_a_number_chooses_among_the_failures(tmp_path):
    records = [asked(f"i{n}", ("user", f"{n}?"), labels=["odd" if n % 2 else "even"]) for n in range(6)]
    folder = evaluated(tmp_path, records, {f"i{n}": str(n) for n in range(6)})
    assert {card.answer for card in draft_cards(folder, label="odd").cards} == {"1", "3", "5"}
    assert len(draft_cards(folder, limit=2).cards) == 2
    with pytest.raises(ConfigError, match="nothing failed with class 'other'; there are even, odd"):
        draft_cards(folder, label="other")
    with pytest.raises(ConfigError, match="unknown split 'deev'"):
        draft_cards(folder, split="deev")
