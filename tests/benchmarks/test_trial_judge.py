"""A trial's draw gives it a judge of its own, and changes nothing else of a benchmark."""

from agent2 import installation
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import ProvidesHiddenPreference, reference_answer
from agent2.benchmarks.replies import GuardedJudge, GuardedReplies, PreferenceJudge, Replies
from agent2.benchmarks.trial_judge import draws_judge, with_drawn_judge
from agent2.evaluation.engine import score_messages
from agent2.records import Message, Rollout, RolloutStatus, Split, Usage, digest_of
from agent2.scorers.hidden import HiddenJudge

SECRET = b"s" * 32


def verdicts(scorer, items, player):
    rollouts = [
        Rollout(
            item.id, 0, 0, RolloutStatus.COMPLETED, [Message("user", item.prompt)], [], player(item, []), {}, Usage()
        )
        for item in items
    ]
    return [score.value for score in scorer.score_batch(list(zip(items, rollouts, strict=True)))]


def test_a_draw_is_a_judge_and_another_draw_another_one():
    items = Replies().items(Split.TEST_PRIVATE, 100, SECRET)
    first, again, second, undrawn = (with_drawn_judge(Replies(), draw) for draw in ("a", "a", "b", ""))
    best = first.informed(SECRET)
    rates = [sum(verdicts(b.judge(SECRET), items, best)) / 100 for b in (first, again, second, undrawn)]
    assert rates[0] == rates[1] > max(rates[2:]) + 0.1
    assert verdicts(undrawn.judge(SECRET), items, best) == verdicts(PreferenceJudge(SECRET, errs=True), items, best)
    elsewhere = verdicts(first.judge(b"t" * 32), items, best)
    assert elsewhere != verdicts(first.judge(SECRET), items, best), "a draw is worth nothing without the secret"


def test_the_scorer_has_the_judge_that_agents_ask_and_names_it_without_its_key(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path))
    secret = installation.secret()
    for name, judge in (("replies", PreferenceJudge), ("replies_guarded", GuardedJudge)):
        plain = load_benchmark(name)
        benchmark = with_drawn_judge(plain, "a")
        items = benchmark.items(Split.TRAIN, 60, None)
        best = benchmark.informed(secret)
        scorer = benchmark.scorer()
        assert verdicts(scorer, items, best) == verdicts(judge(installation.judge_key(secret, "a")), items, best)
        own = judge(installation.judge_key(secret, "a"), errs=True)
        assert verdicts(benchmark.judge(secret), items, best) == verdicts(own, items, best)
        assert verdicts(scorer, items, best) != verdicts(plain.scorer(), items, best)
        assert scorer.judge_digest == digest_of({"draw": "a"}) and plain.scorer().judge_digest == ""
        assert (scorer.name, scorer.version) == (plain.scorer().name, plain.scorer().version)
        played = [score_messages(benchmark, item, [best(item, [])]).value for item in items]
        assert played == verdicts(scorer, items, best)


def test_nothing_else_of_a_benchmark_changes():
    for plain in (Replies(), GuardedReplies()):
        keyed = with_drawn_judge(plain, "a")
        assert isinstance(keyed, type(plain)) and isinstance(keyed, ProvidesHiddenPreference) and draws_judge(keyed)
        for split in Split:
            assert keyed.items(split, 20, SECRET) == plain.items(split, 20, SECRET)
        assert with_drawn_judge(plain, "") is plain
        assert isinstance(plain.scorer(), HiddenJudge) and plain.scorer().draw == ""
    again, once = with_drawn_judge(keyed, "b"), with_drawn_judge(GuardedReplies(), "b")
    items, best = Replies().items(Split.DEV, 50, None), once.informed(SECRET)
    assert again.scorer().draw == "b", "a draw replaces the one before"
    assert verdicts(again.judge(SECRET), items, best) == verdicts(once.judge(SECRET), items, best)


def test_a_benchmark_with_a_verifier_has_no_judge_to_draw():
    arithmetic = load_benchmark("arithmetic")
    assert with_drawn_judge(arithmetic, "a") is arithmetic and not draws_judge(arithmetic)
    item = arithmetic.items(Split.TRAIN, 1, None)[0]
    assert score_messages(arithmetic, item, [reference_answer(item, [])]).value == 1.0
