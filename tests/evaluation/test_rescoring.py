"""Kept rollouts judged again: by another scorer, and against another card."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

from agent2.benchmarks import load_benchmark
from agent2.cards.folder import load_card
from agent2.cards.judgement import BASELINE, read_judgement
from agent2.cards.reader import find_rollouts, iter_rollouts, read_header, read_summary, validate_card
from agent2.cards.writer import CardWriter
from agent2.cli import main
from agent2.errors import CardError, ConfigError, Fault, SamplerFailed
from agent2.evaluation.plan import EvaluationLimits, EvaluationPlan
from agent2.evaluation.rescoring import RESCORED, judge_cards, rescore
from agent2.evaluation.runner import evaluate, play_card
from agent2.evaluation.scoring import ScoringFailed
from agent2.models.sources import ScriptedSampler
from agent2.records import Completion, Preference, Score, ScoringMode, ScoringWork, Split, StopReason
from agent2.scorers.answers import ExactScorer
from card_builders import make_header, make_record, write_old_card


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, " ".join(captured.out.split()), captured.err

    return run


def play(path, reply, name="arithmetic", split=Split.DEV, secret=None, n=12, attempts=1, playing=evaluate):
    """A card of scripted answers. reply: item -> answer."""
    benchmark = load_benchmark(name)
    items = benchmark.items(split, n, secret)
    by_prompt = {item.prompt: item for item in items}
    chosen = EvaluationPlan(
        benchmark,
        split,
        items,
        path.name,
        hashlib.sha256(path.name.encode()).hexdigest(),
        "t" * 64,
        "none",
        attempts=attempts,
        limits=EvaluationLimits(retries=0),
    )

    playing(chosen, ScriptedSampler(lambda messages: reply(by_prompt[messages[-1].content])), path)
    return path


def written_otherwise(item):
    """Right as a number, and not the same text."""
    top, _, bottom = item.reference.partition("/")
    return f"{2 * int(top)}/{2 * int(bottom or 1)}"


def right(item):
    return item.reference


def test_another_scorer_gives_other_verdicts_on_the_same_rollouts(workplace, agent2):
    card = play(workplace / "card", written_otherwise)
    before = {path.name: path.read_bytes() for path in card.iterdir()}
    assert read_summary(card).score.value == 1.0
    code, out, err = agent2("cards", "rescore", card, "--scorer", "exact", "--out", "again")
    assert code == 0, err
    assert "rational-v1.0" in out and "exact-v1.1" in out and out.endswith("card: again")
    new = workplace / "again"
    assert read_summary(new).score.value == 0.0 and read_summary(new).n_missing == 0
    assert validate_card(new) == []
    assert [r.rollout for r in iter_rollouts(new)] == [r.rollout for r in iter_rollouts(card)]
    assert {path.name: path.read_bytes() for path in card.iterdir()} == before
    header, old = read_header(new), read_header(card)
    provenance = header.lock[RESCORED]
    assert provenance["card_digest"] == hashlib.sha256(before["card.json"]).hexdigest()
    assert (provenance["was_scored_by"], provenance["scorer"], provenance["settings"]) == (
        "rational-v1.0",
        "exact-v1.1",
        {},
    )
    assert header.protocol == replace(old.protocol, scorer="exact-v1.1")
    code, _, err = agent2("cards", "rescore", card, "--scorer", "exact", "--out", "again")
    assert code == 2 and "none is overwritten" in err
    code, _, err = agent2("cards", "rescore", card, "--scorer", "exact", "--out", card)
    assert code == 2 and "none is overwritten" in err


def test_the_benchmarks_own_scorer_reproduces_the_card_hidden_splits_included(workplace, agent2):
    from agent2 import installation

    card = play(workplace / "card", right, split=Split.TEST_PUBLIC, secret=installation.secret())
    code, out, _ = agent2("cards", "rescore", card, "--json")
    result = json.loads(out)
    assert code == 0 and result["old"] == result["new"] and result["n_items_moved"] == 0
    assert result["card"].startswith("rescored/card-rational-v1.0-")
    assert read_summary(workplace / result["card"]).item_scores == read_summary(card).item_scores
    (workplace / "home" / "secret").chmod(0o600)
    (workplace / "home" / "secret").write_bytes(b"o" * 32)
    code, _, err = agent2("cards", "rescore", card, "--out", "other")
    assert code == 2 and "chosen under another installation's secret" in err


def test_settings_are_part_of_what_a_card_is_comparable_with(workplace, agent2):
    card = play(workplace / "card", right)
    tests = ("cards", "rescore", card, "--scorer", "python_tests", "--out", "x", "--settings")
    code, _, err = agent2(*tests, "timeout_s=1")
    assert code == 4 and "12 rollouts in a row got no verdict" in err and "payload.tests" in err, err
    code, _, err = agent2(*tests, "timeout_s=2")
    assert code == 2 and "of another evaluation (protocol differ)" in err
    code, _, err = agent2("cards", "rescore", card, "--settings", "a=1")
    assert code == 2 and "name it with --scorer" in err
    code, _, err = agent2("cards", "rescore", card, "--scorer", "exact", "--settings", "speed=1")
    assert code == 2 and "exact" in err and "speed" in err
    code, _, err = agent2("cards", "rescore", card, "--scorer", "exact", "--settings", "speed")
    assert code == 2 and "write NAME=VALUE" in err
    digests = set()
    for settings in ({}, {"strict": True}, {"strict": False}):
        target = workplace / f"with-{settings.get('strict')}"
        rescore(card, target, ExactScorer(), settings)
        digests.add(read_header(target).protocol.digest)
    assert len(digests) == 3


def test_a_scorer_that_raises_in_the_middle_costs_one_rollout(workplace):
    card = play(workplace / "card", right)
    broken = next(iter(iter_rollouts(card))).rollout.item_id

    class Falling(ExactScorer):
        def score(self, item, rollout):
            if item.id == broken:
                raise KeyError("a bug")
            return super().score(item, rollout)

    summary = rescore(card, workplace / "new", Falling())
    assert (summary.score.value, summary.n_items, summary.items_missing) == (1.0, 11, [broken])
    ((_, record),) = find_rollouts(workplace / "new", broken)
    assert record.score.fault is Fault.JUDGE and "KeyError" in record.score.reason


def test_a_rescoring_that_was_cut_short_is_resumed_and_only_with_the_same_card(workplace):
    card, other_card = play(workplace / "card", right), play(workplace / "other", right)

    class Counting(ExactScorer):
        n_asked = 0

        def score(self, item, rollout):
            type(self).n_asked += 1
            return super().score(item, rollout)

    def cut(done, planned):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescore(card, workplace / "new", Counting(), on_progress=cut)
    with pytest.raises(CardError, match="is made from other cards"):
        rescore(other_card, workplace / "new", Counting())
    assert load_card(workplace / "new").state == "open"
    assert rescore(card, workplace / "new", Counting()).n_rollouts == 12
    assert Counting.n_asked == 12


def test_what_cannot_be_judged_again_is_refused_in_one_line(workplace, agent2):
    card = play(workplace / "card", right)
    code, _, err = agent2("cards", "rescore", card, "--scorer", "household_won")
    assert code == 2 and "judges by the final state of a world" in err and "question-v1.0" in err
    code, _, err = agent2("cards", "rescore", card, "--scorer", "longer_answer")
    assert code == 2 and "use: agent2 cards judge" in err
    code, _, err = agent2("cards", "judge", card, card, "--scorer", "exact")
    assert code == 2 and "use: agent2 cards rescore" in err
    code, _, err = agent2("cards", "rescore", card, "--scorer", "exakt")
    assert code == 2 and "did you mean 'exact'" in err
    code, _, err = agent2("cards", "rescore", workplace, "--scorer", "exact")
    assert (code == 2 and "is it the folder of a card" in err) or "folder of a card" in err
    open_card = workplace / "open"
    with CardWriter(open_card, make_header()) as writer:
        writer.append(make_record())
    code, _, err = agent2("cards", "rescore", open_card, "--scorer", "exact")
    assert code == 2 and "is not finished" in err
    with CardWriter(workplace / "strange", make_header()) as writer:
        writer.append(make_record())
        writer.close()
    code, _, err = agent2("cards", "rescore", "strange", "--scorer", "exact")
    assert code == 2 and "'fake-v1'" in err and "--benchmark" in err
    code, _, err = agent2("cards", "rescore", "strange", "--scorer", "exact", "--benchmark", "arithmetic")
    assert code == 2 and "gives others now" in err


def test_a_card_of_the_first_format_is_judged_again(workplace):
    card = play(workplace / "card", written_otherwise)
    old = write_old_card(workplace / "old", list(iter_rollouts(card)), 1, read_header(card))
    assert rescore(old, workplace / "new", ExactScorer()).score.value == 0.0


def test_a_played_card_can_be_scored_by_name(workplace, agent2):
    card = play(workplace / "card", right, playing=play_card)
    code, out, _ = agent2("cards", "rescore", card, "--out", "scored")
    assert code == 0 and "pending" in out
    assert read_summary(workplace / "scored").score.value == 1.0
    assert read_header(workplace / "scored").lock[RESCORED]["was_scored_by"] is None


def length(by_item):
    return lambda item: "x" * by_item(item)


def place_of(item):
    return sum(item.id.encode())


def test_a_judgement_counts_wins_ties_and_losses_in_both_orders(workplace, agent2):
    old = play(workplace / "old", length(lambda item: 5), attempts=2)
    new = play(workplace / "new", length(lambda item: 4 + place_of(item) % 3), attempts=2)
    code, out, err = agent2("cards", "judge", old, new, "--scorer", "longer_answer", "--out", "judged", "--json")
    assert code == 0, err
    result = json.loads(out)
    items = [r.rollout.item_id for r in iter_rollouts(new)]
    sizes = [4 + sum(item.encode()) % 3 for item in items]
    expected = [sum(size > 5 for size in sizes), sum(size == 5 for size in sizes), sum(size < 5 for size in sizes)]
    assert [result["n_wins"], result["n_ties"], result["n_losses"]] == expected
    assert (result["baseline"], result["n_missing"], result["n_flips"], result["first_shown"]) == (0.5, 0, 0, 0.5)
    assert result["win_rate"]["value"] == pytest.approx((expected[0] + 0.5 * expected[1]) / 24)
    assert result["win_rate"]["low"] <= result["win_rate"]["value"] <= result["win_rate"]["high"]
    assert (result["old"]["checkpoint_name"], result["new"]["checkpoint_name"]) == ("old", "new")
    assert validate_card(workplace / "judged") == []
    swapped = judge_cards(new, old, workplace / "swapped", make_longer())
    assert swapped.score.value == pytest.approx(1 - result["win_rate"]["value"])
    _, record = find_rollouts(workplace / "judged", items[0])[0]
    assert record.rollout.state["old"]["answer"] == "xxxxx"
    code, _, err = agent2("cards", "judge", old, new, "--scorer", "longer_answer", "--out", "judged")
    assert code == 2 and "none is overwritten" in err
    code, _, err = agent2("cards", "judge", old, "judged", "--scorer", "longer_answer")
    assert code == 2 and "is a judgement of two cards already" in err


def make_longer(**settings):
    from agent2.scorers import load_scorer

    return load_scorer("longer_answer", settings)


def test_a_judge_that_likes_the_first_place_gains_nothing_and_is_found_out(workplace):
    class First:
        name, version = "first_place", "1"

        def prefer(self, item, first, second):
            return Preference(1.0, "it came first")

    old, new = play(workplace / "old", right), play(workplace / "new", length(lambda item: 3))
    summary = judge_cards(old, new, workplace / "judged", First())
    judgement = read_judgement(workplace / "judged")
    assert summary.score.value == BASELINE
    assert (judgement.n_ties, judgement.n_flips, judgement.first_shown) == (12, 12, 1.0)


def test_a_side_that_failed_is_a_loss_only_if_its_model_is_to_blame(workplace):
    chosen = load_benchmark("arithmetic").items(Split.DEV, 12, None)[:1]
    good = play(workplace / "good", lambda item: "an answer")

    def broken(fault):
        def reply(item):
            if item.id == chosen[0].id:
                if fault is Fault.INFRASTRUCTURE:
                    raise SamplerFailed("no route")
                return Completion("", stop_reason=StopReason.FAULT, fault=fault, reason="it broke")
            return "an answer"

        return reply

    lost = play_with_faults(workplace / "lost", broken(Fault.MODEL))
    gone = play_with_faults(workplace / "gone", broken(Fault.INFRASTRUCTURE))
    summary = judge_cards(good, lost, workplace / "a", make_longer())
    assert (summary.item_scores[chosen[0].id], summary.n_missing) == (0.0, 0)
    assert judge_cards(lost, good, workplace / "b", make_longer()).item_scores[chosen[0].id] == 1.0
    assert judge_cards(lost, lost, workplace / "c", make_longer()).item_scores[chosen[0].id] == 0.5
    for first, second, name in ((good, gone, "d"), (gone, good, "e"), (lost, gone, "f")):
        summary = judge_cards(first, second, workplace / name, make_longer())
        assert (summary.item_scores[chosen[0].id], summary.n_missing) == (None, 1), name


def play_with_faults(path, reply):
    class Sampler(ScriptedSampler):
        def submit(self, request_id, prompt, settings):
            answer = reply(by_prompt[prompt[-1].content])
            if isinstance(answer, Completion):
                self._done[request_id] = answer
            else:
                super().submit(request_id, prompt, settings)

    benchmark = load_benchmark("arithmetic")
    items = benchmark.items(Split.DEV, 12, None)
    by_prompt = {item.prompt: item for item in items}
    digest = hashlib.sha256(path.name.encode()).hexdigest()
    chosen = EvaluationPlan(
        benchmark, Split.DEV, items, path.name, digest, "t" * 64, "none", limits=EvaluationLimits(retries=0)
    )
    evaluate(chosen, Sampler(lambda messages: "an answer"), path)
    return path


def test_a_pair_without_a_usable_verdict_is_missing_and_a_judge_that_is_gone_ends_it(workplace):
    old, new = play(workplace / "old", right), play(workplace / "new", right)
    first = next(iter(iter_rollouts(new))).rollout.item_id

    class Odd:
        name, version = "odd", "1"
        work = ScoringWork(ScoringMode.BATCH, concurrency=4)
        is_down = False

        def prefer(self, item, shown_first, shown_second):
            if self.is_down:
                raise ConnectionError("no route to the judge")
            if item.id == first:
                return Preference(1.5, "more than all")
            return Preference(0.5, "alike")

    summary = judge_cards(old, new, workplace / "judged", Odd())
    assert (summary.score.value, summary.items_missing) == (0.5, [first])
    ((_, record),) = find_rollouts(workplace / "judged", first)
    assert record.score == Score(None, record.score.reason, Fault.JUDGE) and "1.5" in record.score.reason
    Odd.is_down = True
    with pytest.raises(ScoringFailed, match=r"12 rollouts in a row.*no route"):
        judge_cards(old, new, workplace / "down", Odd())


def test_cards_of_other_items_are_not_compared(workplace):
    old = play(workplace / "old", right)
    for changes in ({"n": 8}, {"attempts": 2}, {"name": "mini_math"}):
        new = play(workplace / f"new-{len(list(workplace.iterdir()))}", right, **changes)
        with pytest.raises(ConfigError, match="are of other items"):
            judge_cards(old, new, workplace / "judged", make_longer())
