"""The blind search by which the agent self-edit edits a text, with verifiers of our own and that of a task."""

import sys
from types import SimpleNamespace

import pytest

from agent2.arena.agents import load_agent
from agent2.benchmarks import load_benchmark
from agent2.evaluation.engine import scored_answers
from agent2.records import Score, Split

WRITTEN = (
    "**Old Lamp**\n\nThe lamp was broken, but it still shone in the window. I was so happy, and we all laughed! "
    "Come and see it soon, my dear friend, before the winter comes and the river is frozen.",
    'Title: "Coffee"\n\n1. Drink it in the morning, slowly.\n2. Share it with people you love.\n3. Enjoy the smell.',
    "I'm glad that you asked. Here is a short text about a rainy day in the old town, as you wanted it to be",
)
REQUEST = 'Tell me of the sea. Say "amber tide" somewhere, as in ((amber)).'


@pytest.fixture(scope="module")
def agent():
    folder = str(load_agent("self-edit").folder)
    sys.path.insert(0, folder)
    try:
        import edits
        import search
    finally:
        sys.path.remove(folder)
        sys.modules.pop("edits", None)
        sys.modules.pop("search", None)
    return SimpleNamespace(edits=edits, search=search)


def outcome(agent, rule):
    """A verifier that says only whether a text is accepted."""
    return lambda text: agent.search.Credit(float(rule(text)), 0.0)


def test_nearly_every_text_of_a_task_has_an_edit_that_its_verifier_accepts_and_that_still_says_something(agent):
    benchmark = load_benchmark("instructions")
    items = benchmark.items(Split.TRAIN, 60, None)
    search = agent.search.EditSearch()
    unsolved = []
    for number, item in enumerate(items):
        written = WRITTEN[number % len(WRITTEN)]

        def verify(text, item=item):
            (scored,) = scored_answers(benchmark, [(item, [text])])
            return agent.search.credit_of(scored.score)

        text = search.find(item.prompt, written, verify)
        if text is None:
            unsolved.append(item.prompt)
        else:
            assert verify(text).outcome == 1.0
            assert agent.edits.still_says(text, written), text
    assert len(unsolved) <= 4, unsolved
    assert search.n_calls < 100 * len(items)
    assert sum(search.helped.values()) >= len(items) - len(unsolved) - 10


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (lambda text: text == text.lower(), "it rains in town. we stay at home, and read."),
        (lambda text: text.endswith("amber tide"), "It rains in town. We stay at home, and read.\namber tide"),
        (lambda text: "((" in text, "((Rains))\nIt rains in town. We stay at home, and read."),
        (lambda text: text.count("\n- ") == 1 and text.isupper(), "- IT RAINS IN TOWN. WE\n- STAY AT HOME, AND READ."),
        (lambda text: len(text) < 30, "It rains in town."),
        (lambda text: "," not in text, "It rains in town. We stay at home and read."),
    ],
)
def test_what_a_made_up_verifier_wants_is_found_with_the_fewest_edits_of_the_longest_text(agent, rule, found):
    written = "**It rains in town.** We stay at home, and read."
    verify = outcome(agent, rule)
    assert agent.search.EditSearch().find(REQUEST, written, verify) == found


@pytest.mark.parametrize("rule", [lambda text: False, lambda text: text.endswith("!!!")])
def test_a_verifier_that_no_edit_satisfies_is_asked_no_more_often_than_the_bound(agent, rule):
    search = agent.search.EditSearch(most_calls=80)
    assert search.find(REQUEST, WRITTEN[0], outcome(agent, rule)) is None
    assert search.n_calls <= 80
    assert not search.helped


def test_credit_leads_to_a_text_that_needs_three_edits_even_past_one_that_leads_nowhere(agent):
    def verify(text):
        wishes = [text == text.lower(), "* " in text, text.startswith('"') and "amber tide" in text]
        # Upper case earns as much as each wish and excludes one.
        credit = max(sum(wishes), int(text.isupper())) / 3
        return agent.search.Credit(float(all(wishes)), credit)

    search = agent.search.EditSearch()
    text = search.find(REQUEST, WRITTEN[1], verify)
    assert text is not None and verify(text).outcome == 1.0
    assert search.n_calls < 600


def test_edits_that_helped_are_tried_first(agent):
    search = agent.search.EditSearch()
    n_calls = []
    for written in WRITTEN[:2]:
        before = search.n_calls
        assert search.find("Tell me of the sea.", written, outcome(agent, str.isupper))
        n_calls.append(search.n_calls - before)
    assert n_calls[1] < n_calls[0]
    assert search.helped == {"upper case": 2}


def test_a_text_that_loses_its_words_or_repeats_itself_is_no_edit(agent):
    form = "The sea is amber today."
    words = [edit for edit in agent.edits.edits_for("The sea is amber.", form) if "word" in str(edit)]
    assert agent.edits.edited(form, [edit for edit in words if str(edit) == "leave out the word 'the'"]) is not None
    assert agent.edits.edited(form, [edit for edit in words if "leave out" in str(edit)]) is None
    echo = [edit for edit in agent.edits.edits_for('Say "the sea is"', form) if str(edit).startswith("end with")]
    assert len(echo) == 1 and agent.edits.edited(form, echo) is None
    assert not agent.edits.still_says("* \n* \n* ", form)


def test_forms_come_from_the_longest_to_the_shortest_and_end_with_whole_sentences_where_they_can(agent):
    assert agent.edits.forms("It rains today. We stay at home and read. Come over!")[:2] == [
        "It rains today. We stay at home and read. Come over.",
        "It rains today. We stay at home and read.",
    ]


@pytest.mark.parametrize("written", ["", "* ***\n* ***", "<<Title>>", "Yes, I do."])
def test_a_text_of_fewer_than_four_words_is_not_edited(agent, written):
    search = agent.search.EditSearch()
    assert search.find(REQUEST, written, outcome(agent, lambda text: True)) is None
    assert search.n_calls == 0


def test_the_credit_of_a_score_that_is_missing_is_the_least(agent):
    assert agent.search.credit_of(Score(None, "lost", views={"a": 1.0})) < agent.search.credit_of(Score(0.0, "no"))
