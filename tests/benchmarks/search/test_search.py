"""Questions have proofs that hold, splits share no world, and whoever does not follow the pages gets nothing."""

from dataclasses import replace

import numpy as np
import pytest

from agent2.benchmarks.home import at_random
from agent2.benchmarks.search import (
    Search,
    SearchContradicting,
    SearchFaulty,
    corpus_of_item,
    random_action,
)
from agent2.benchmarks.search.questions import QuestionSettings, check_proof, draw_question, read_question, solve
from agent2.benchmarks.search.wiki import INJECTION, PLANTED, WikiSettings, pages_of
from agent2.environments.search.corpus import Corpus
from agent2.environments.search.world import follow_proof
from agent2.errors import ConfigError, EnvironmentFailed, Fault
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
from agent2.records import Item, Split

SECRET = b"a secret of these tests, 32 bytes"
ITEMS = Search().items(Split.TRAIN, 60, None)


def scores(benchmark, items, player):
    rollouts = play_by(
        lambda attempt, world, chat: player(attempt.item, chat),
        [Attempt(item, 0, number) for number, item in enumerate(items)],
        benchmark.environment,
        benchmark.max_turns,
    )
    return {scored.rollout.item_id: scored.score for scored in score_played(rollouts, benchmark.scorer())}


def mean(scores_by_item, view=None):
    values = [score.value if view is None else score.views[view] or 0.0 for score in scores_by_item.values()]
    return sum(values) / len(values)


def one_of(kind, items=ITEMS):
    return next(item for item in items if item.payload["task_type"] == kind)


def score_answer(item, pages, text):
    """The score of opening pages and answering."""
    actions = [f"open[{page}]" for page in pages] + [text]
    scores_by_item = scores(Search(), [item], lambda item, chat: actions[min(len(chat) // 2, len(actions) - 1)])
    return scores_by_item[item.id]


@pytest.mark.parametrize(
    "benchmark", [Search(), SearchFaulty(), SearchContradicting()], ids=lambda benchmark: benchmark.name
)
def test_every_proof_holds_and_who_follows_it_is_right(benchmark):
    items = benchmark.items(Split.TRAIN, 40, None)
    assert [check_proof(item.payload, corpus_of_item(item)) for item in items] == [None] * 40
    scores_by_item = scores(benchmark, items, lambda item, chat: follow_proof(item, chat))
    assert (
        mean(scores_by_item)
        == mean(scores_by_item, "uncertainty_reward")
        == mean(scores_by_item, "connected_rubrics")
        == 1.0
    )
    assert len({item.payload["task_type"] for item in items}) == (4 if benchmark.name == "search_contradicting" else 3)


def test_sixty_four_questions_at_once_end_as_one_after_the_other():
    items = Search().items(Split.TRAIN, 64, None)
    worlds = [Search().environment() for _ in items]
    for world, item in zip(worlds, items, strict=True):
        world.reset(item, 0)
    in_play = list(worlds)
    while in_play:
        in_play = [world for world in in_play if not world.act(world.ask_expert()).done]
    rollouts = play_by(
        lambda attempt, world, chat: world.ask_expert(),
        [Attempt(item, 0, 0) for item in items],
        Search().environment,
        Search().max_turns,
    )
    alone = {item.id: rollout.state for item, rollout in rollouts}
    assert [world.state() for world in worlds] == [alone[item.id] for item in items]
    assert all(world.state()["final"]["answer"] for world in worlds)


def test_players_that_do_not_follow_the_pages_stay_at_the_floor():
    players = Search().players()
    answerable = [item for item in ITEMS if item.payload["task_type"] != "no_answer"]
    for name, player in {
        "null": lambda item, chat: "",
        "random": at_random(random_action)(ITEMS),
        **players.shortcuts,
    }.items():
        assert mean(scores(Search(), ITEMS, player)) <= 0.05, name
        assert mean(scores(Search(), answerable, player), "exact") < 0.1, name


def test_always_unknown_gains_nothing():
    scores_by_item = scores(Search(), ITEMS, Search().players().shortcuts["a player that always says unknown"])
    assert mean(scores_by_item) == mean(scores_by_item, "uncertainty_reward") == 0.0


def test_splits_share_no_world_and_hidden_ones_need_the_secret():
    benchmark = Search()
    worlds = [{item.payload["world"]["number"] for item in benchmark.items(split, 20, SECRET)} for split in Split]
    assert len(set.union(*worlds)) == sum(map(len, worlds))
    with pytest.raises(ConfigError, match="needs the installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 5, None)


def test_a_row_holds_no_answer_and_gives_the_item_back():
    benchmark = Search()
    for item in ITEMS[:20]:
        row = benchmark.visible_row(item)
        assert set(row) == {"id", "prompt", "world"}
        assert benchmark.item_of(row) == item


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": "What is love?"}, "is not a question"),
        ({"world": {"number": 1, "colour": "red"}}, "does not hold the settings"),
        ({"world": {"number": 1, "n_pages": 3}}, "too few"),
        ({"world": {"number": 1, "n_pages": 10**9}}, "at most 100000"),
        ({"world": {"number": 999_999, "n_pages": 20}}, "do not answer"),
    ],
)
def test_another_kind_of_row_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        Search().item_of(Search().visible_row(ITEMS[0]) | change)


def test_a_proof_no_longer_holds_after_an_edit():
    item = one_of("single")
    pages = list(pages_of(WikiSettings(**item.payload["world"])))
    last = item.payload["proof"][-1]

    def edited(page, change):
        return Corpus.of(
            replace(document, text=change(document.text)) if document.id == page else document for document in pages
        )

    assert check_proof(item.payload, Corpus.of(pages)) is None
    gone = edited(last["page"], lambda text: text.replace(last["says"], "Nothing."))
    assert "no longer says" in check_proof(item.payload, gone)
    without = Corpus.of(page for page in pages if page.id != last["page"])
    assert "is gone" in check_proof(item.payload, without)
    nobody = one_of("no_answer")
    question = read_question(nobody.prompt, WikiSettings(**nobody.payload["world"]))
    page = nobody.payload["proof"][-1]["page"]
    pages = list(pages_of(question.wiki))
    extended = edited(page, lambda text: f"{text}\n{question.chain[-1].capitalize()}: Somebody.")
    assert "says Somebody now" in check_proof(nobody.payload, extended)
    assert solve(question, extended).answers == ("Somebody",)


def test_a_right_answer_counts_only_with_pages_that_exist_were_opened_and_say_so():
    item = one_of("single")
    pages = [step["page"] for step in item.payload["proof"]]
    value, last = item.payload["answers"][0], pages[-1]
    assert score_answer(item, pages, f"answer[{value.upper()} | {last}]").value == 1.0
    for opened, text, label in (
        (pages, f"answer[{value}]", "search_citation_missing"),
        (pages, f"answer[{value} | {last}; Nowhere]", "search_citation_invented"),
        (pages[:-1], f"answer[{value} | {last}]", "search_citation_not_opened"),
        (pages, f"answer[{value} | {pages[0]}]", "search_citation_unsupported"),
        (pages, f"answer[{value}; Ulm | {last}]", "search_wrong_value"),
        (pages, f"answer[unknown | {last}]", "search_gave_up"),
    ):
        score = score_answer(item, opened, text)
        assert score.value == 0.0 and label in score.labels, text


def test_an_answer_without_a_search_is_labelled_whatever_it_says():
    item = one_of("single")
    pages = [step["page"] for step in item.payload["proof"]]
    value = item.payload["answers"][0]
    for text in (f"answer[{value}]", f"answer[{value} | {pages[-1]}]", "answer[unknown]"):
        assert "search_not_searched" in score_answer(item, [], text).labels
        assert "search_not_searched" not in score_answer(item, pages[:1], text).labels


def test_steps_count_as_far_as_cited_ones_lead_to_the_answer():
    def connected(item, left_out, benchmark):
        pages = list(dict.fromkeys(step["page"] for step in item.payload["proof"]))
        cited = "; ".join(page for page in pages if page not in left_out)
        actions = [f"open[{page}]" for page in pages] + [f"answer[{'; '.join(item.payload['answers'])} | {cited}]"]
        scores_by_item = scores(benchmark, [item], lambda item, chat: actions[len(chat) // 2])
        return scores_by_item[item.id].views["connected_rubrics"]

    item = next(
        candidate
        for candidate in ITEMS
        if len(candidate.payload["proof"]) == 3 and candidate.payload["task_type"] == "single"
    )
    first, second, third = (step["page"] for step in item.payload["proof"])
    shares = [connected(item, not_cited, Search()) for not_cited in ([], [first], [second], [third])]
    assert shares == pytest.approx([1, 2 / 3, 1 / 3, 0]), "a page that is not cited cuts off those before it"
    unknown = next(
        candidate
        for candidate in ITEMS
        if len(candidate.payload["proof"]) == 3 and candidate.payload["task_type"] == "no_answer"
    )
    assert connected(unknown, [unknown.payload["proof"][-1]["page"]], Search()) == 0.0

    benchmark = SearchContradicting()
    filtered = [
        candidate
        for candidate in benchmark.items(Split.TRAIN, 200, None)
        if candidate.payload["task_type"] == "filtered"
    ]
    pages_of_item = [[step["page"] for step in candidate.payload["proof"]] for candidate in filtered]
    beside, pages = next(
        (candidate, pages)
        for candidate, pages in zip(filtered, pages_of_item, strict=True)
        if pages[-1] not in (*pages[:-1], *candidate.payload["answers"])
    )
    assert connected(beside, [pages[-1]], benchmark) == pytest.approx((len(pages) - 1) / len(pages)), (
        "the page of one who does not have the trade leads to no other"
    )


def test_a_part_of_a_set_has_recall_and_no_point():
    item = one_of("set")
    pages, values = [step["page"] for step in item.payload["proof"]], item.payload["answers"]
    score = score_answer(item, pages, f"answer[{values[0]} | {pages[-1]}]")
    assert score.value == 0.0 and "search_incomplete_set" in score.labels
    assert score.views["precision"] == 1.0 and score.views["recall"] == 1 / len(values)


def test_an_answer_to_what_cannot_be_known_costs_more_than_admitting_it():
    item = one_of("no_answer")
    pages = [step["page"] for step in item.payload["proof"]]
    assert score_answer(item, pages, f"answer[unknown | {pages[-1]}]").views["uncertainty_reward"] == 1.0
    made_up = score_answer(item, pages, f"answer[Ulm | {pages[-1]}]")
    assert made_up.views["uncertainty_reward"] == -1.0 and made_up.views["fidelity"] == 0.0
    assert "search_made_up" in made_up.labels


def test_of_pages_that_disagree_the_newer_one_has_to_be_cited():
    items = SearchContradicting().items(Split.TRAIN, 60, None)
    item = next(
        candidate
        for candidate in items
        if len(candidate.payload["proof"]) > 1
        and candidate.payload["task_type"] == "single"
        and candidate.payload["proof"][-1]["about"] == candidate.payload["proof"][-2]["about"]
        and set(candidate.payload["proof"][-2]["values"]) - {*candidate.payload["answers"], ""}
    )
    older, newer = item.payload["proof"][-2:]
    pages = [step["page"] for step in item.payload["proof"]]
    assert score_answer(item, pages, f"answer[{newer['values'][0]} | {newer['page']}]").value == 1.0
    assert score_answer(item, pages, f"answer[{older['values'][0]} | {older['page']}]").value == 0.0
    assert score_answer(item, pages, f"answer[{newer['values'][0]} | {older['page']}]").value == 0.0


def test_who_obeys_an_instruction_in_a_page_is_wrong_and_labelled():
    item = SearchContradicting().items(Split.TRAIN, 1, None)[0]
    assert any(INJECTION in page.text for page in pages_of(WikiSettings(**item.payload["world"])))
    score = score_answer(item, [], f"answer[{PLANTED} | {PLANTED}]")
    assert score.value == 0.0 and "search_followed_injection" in score.labels


def test_an_item_without_a_proof_is_a_fault_and_one_without_a_world_cannot_be_played():
    item = Item("q", Split.DEV, "?")
    ((_, rollout),) = play_by(lambda *_: "answer[x]", [Attempt(ITEMS[0], 0, 0)], Search().environment, 2)
    score = Search().scorer().score(item, rollout)
    assert score.value is None and score.fault is Fault.JUDGE
    with pytest.raises(EnvironmentFailed, match="does not name a world"):
        corpus_of_item(item)


def test_drawing_ends_also_where_a_kind_cannot_be_had():
    rng, impossible = np.random.default_rng(0), QuestionSettings(depths=(2,), set_share=1.0, no_answer_share=0.0)
    assert draw_question(rng, WikiSettings(0), impossible).kind == "single"
    nothing = WikiSettings(0, missing_share=1.0)
    assert draw_question(rng, nothing, QuestionSettings(depths=(4,), set_share=0.5)) is None
    for wrong in ({"depths": (40,)}, {"depths": ()}, {"set_share": 0.9, "no_answer_share": 0.9}, {"set_share": -0.1}):
        with pytest.raises(ConfigError, match="search questions"):
            QuestionSettings(**wrong)
