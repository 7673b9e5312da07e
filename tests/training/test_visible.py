import json
import time
from dataclasses import replace

import msgspec
import pytest

from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import visible_row
from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError, Fault
from agent2.evaluation.engine import score_messages
from agent2.models.bases import ensure_base_model
from agent2.records import Item, Rollout, RolloutStatus, Score, ScoredRollout, Split, Usage
from agent2.training.grpo import GrpoSettings
from agent2.training.participant import Participant, read_participant
from agent2.training.visible import AttemptSettings, TraceSettings, VisibleTask, print_log_line, read_visible
from model_builders import make_model

SCORING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12, "max_turns": 12}


@pytest.fixture
def participate(tmp_path, monkeypatch):
    """Writes a workspace for a benchmark and returns its participant."""

    def make(benchmark, rows, scoring=SCORING):
        (tmp_path / "data").mkdir()
        assignment = {"benchmark": benchmark, "scoring": scoring}
        (tmp_path / "assignment.json").write_text(json.dumps(assignment))
        for split in ("train", "dev"):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)  # as the workspace has them
            (tmp_path / "data" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
        monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
        for name in ("WORKSPACE", "MODEL_PATH", "DATA_PATH", "OUTPUT_DIR"):
            monkeypatch.setenv(name, str(tmp_path))
        monkeypatch.setenv("DATA_PATH", str(tmp_path / "data"))
        monkeypatch.setenv("GRADING_SERVER_URL", "http://127.0.0.1:1")
        return read_participant()

    return make


def rows(n, name="household"):
    benchmark = load_benchmark(name)
    return [visible_row(benchmark, item) for item in benchmark.items(Split.TRAIN, n, None)]


@pytest.mark.engine
def test_rows_become_items_that_can_be_played_and_the_design_says_how_they_are(participate):
    task = read_visible(participate("household", rows(3)))
    assert task.is_interactive and task.participant.max_turns == 12
    world = task.world()
    assert world.reset(task.train[0], 0)[0].content == task.train[0].prompt
    protocol = task.describe_evaluation(["before training"])
    assert "3 dev items" in protocol and "at most 12 turns, at temperature 1.0" in protocol


def test_the_reward_that_is_learned_from_may_be_named_and_measured_is_still_the_score(participate, monkeypatch):
    monkeypatch.setenv("AGENT2_REWARD", "inverted")
    task = read_visible(participate("arithmetic", rows(4, "arithmetic"), QUESTIONS))
    item = task.train[0]
    assert task.reward([item.reference, "no number"], [item.id, item.id]) == [0.0, 1.0]
    assert score_messages(task.benchmark, item, [item.reference]).value == 1.0
    monkeypatch.setenv("AGENT2_REWARD", "outcom")
    with pytest.raises(ConfigError, match="outcome"):
        read_visible(task.participant)


QUESTIONS = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12}
SINGLE = ("arithmetic", "mini_knowledge", "mini_math", "mini_ifeval", "mini_functions")
PLAYED = ("household", "mini_apis", "mini_repo")


@pytest.mark.parametrize("name", SINGLE)
def test_questions_bring_answers_to_imitate_that_the_benchmarks_own_scorer_pays_for(participate, name):
    task = read_visible(participate(name, rows(12, name), QUESTIONS))
    assert not task.is_interactive
    assert [(row["prompt"], row["answer"]) for row in task.demonstrations(TraceSettings()).rows] == [
        (item.prompt, item.reference) for item in task.train
    ]
    ids = [row["answer"] for row in task.questions()]
    assert task.reward([item.reference for item in task.train], ids) == [1.0] * 12
    assert sum(task.reward(["no idea"] * 12, ids)) <= 2  # of mini_functions, a few are answered without a call
    assert [row["messages"] for row in task.questions()] == [
        [{"role": "user", "content": item.prompt}] for item in task.train
    ]


@pytest.mark.engine
@pytest.mark.parametrize("name", PLAYED)
def test_episodes_bring_traces_of_an_expert_that_the_benchmarks_own_scorer_pays_for(participate, name):
    task = read_visible(participate(name, rows(8, name)))
    demonstrations = task.demonstrations(TraceSettings(episodes_per_item=1, clumsy_share=0.0))
    assert len(demonstrations.rows) >= 7
    prompts = {item.prompt: item for item in task.train}
    for row in demonstrations.rows:
        item = prompts[row["messages"][0]["content"]]
        actions = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert len(actions) > 1
        if name == "household":  # the others meet faults by the seed of the episode
            assert score_messages(task.benchmark, item, actions).value == 1.0
            assert score_messages(task.benchmark, item, actions[:-1]).value == 0.0


class Silent:
    """Episodes that nobody shows how to play, and questions without answers."""

    name = "silent"
    max_turns = 3

    def environment(self):
        return QuestionEnvironment()

    def scorer(self):
        return self

    def score(self, item, rollout):
        return Score(None, "there are no tests", Fault.JUDGE)


@pytest.mark.parametrize("scoring", [SCORING, QUESTIONS])
def test_a_task_with_nothing_to_imitate_says_so(participate, scoring):
    me = participate("arithmetic", [{"id": "a", "prompt": "1 + 1 ="}], scoring)
    task = VisibleTask(Silent(), [Item("a", Split.TRAIN, "1 + 1 =")], [], me)
    for ask in (lambda: task.demonstrations(TraceSettings()), lambda: task.static_rows(0)):
        with pytest.raises(ConfigError, match=r"silent: (there is nothing to imitate|nothing can be imitated)"):
            ask()


def test_a_row_without_a_prompt_and_a_completion_that_cannot_be_judged_are_refused(participate):
    with pytest.raises(ConfigError, match="row 'a' of mini_math has no prompt"):
        read_visible(participate("mini_math", [{"id": "a", "answer": "1"}], QUESTIONS))
    item = Item("a", Split.TRAIN, "Which?")
    with pytest.raises(ConfigError, match=r"train item a: its answer has no score .*no tests"):
        VisibleTask(Silent(), [item], [], None).reward(["B"], ["a"])


@pytest.mark.engine
def test_openings_alone_can_be_imitated_where_the_home_says_with_what(participate):
    task = read_visible(participate("household", rows(6)))
    demonstrations = task.static_rows(3).rows
    assert [row["prompt"] for row in demonstrations] == [item.prompt for item in task.train]
    assert {row["answer"].partition(" to ")[0] for row in demonstrations} == {"go"}
    assert all(row["answer"].removeprefix("go to ") in row["prompt"] for row in demonstrations)


@pytest.mark.slow
def test_a_checkpoint_is_played_on_every_dev_item(participate):
    task = read_visible(participate("household", rows(24)))
    score = task.evaluate_on_dev(ensure_base_model("tiny-household", BASE_MODELS))
    assert score.n_missing == 0
    assert 0 <= score.success < 0.4
    assert set(score.by_type) <= {item.payload["task_type"] for item in task.dev}
    assert task.evaluate_on_dev(ensure_base_model("tiny-household", BASE_MODELS)) == score
    logged = [json.loads(line) for line in (task.participant.output / "eval_log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["eval_dev"]) for line in logged] == [(0, score.success), (1, score.success)]


@pytest.mark.slow
def test_a_checkpoint_is_measured_handed_in_and_both_are_told(participate, monkeypatch, capsys):
    task = read_visible(participate("household", rows(4)))
    handed_in = []

    def submit(_, checkpoint, note):
        handed_in.append((checkpoint, note))
        return {"submission_id": 2, "score": 74.333, "baseline_score": 6.333, "error": None}

    monkeypatch.setattr(Participant, "submit", submit)
    base = ensure_base_model("tiny-household", BASE_MODELS)
    task.check_and_submit(base, "as it was")
    success = json.loads((task.participant.output / "eval_log.jsonl").read_text())["eval_dev"]
    assert handed_in == [(base, f"as it was, dev {100 * success:.1f}%")]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"as it was: {task.evaluate_on_dev(base)} of {len(task.dev)} dev items",
        "submission 2: 74.3 (base model 6.3)",
    ]


def test_a_line_of_the_log_is_told_in_words(capsys):
    print_log_line({"phase": "grpo", "step": 4, "loss": 0.5, "success": 0.25, "t": 1.0})
    assert capsys.readouterr().out == "grpo step 4: loss 0.500, success 0.250\n"


@pytest.mark.engine
@pytest.mark.parametrize("text", ["a lot", "0", "-1", "nan", "inf"])
def test_an_effort_that_is_no_number_above_zero_is_refused(participate, monkeypatch, text):
    monkeypatch.setenv("AGENT2_EFFORT", text)
    with pytest.raises(ConfigError, match="AGENT2_EFFORT"):
        participate("household", rows(1))


def test_a_row_with_a_line_separator_in_its_text_is_one_row(participate):
    row = {"id": "a", "prompt": "one\u2028two\u0085three", "answer": "1"}
    assert participate("arithmetic", [row]).train == [row]


@pytest.mark.parametrize(("judgements", "steps"), [(None, 150), (10_000, 38), (600, 1)])
def test_grpo_takes_no_more_steps_than_its_judgements_allow(participate, judgements, steps):
    task = read_visible(replace(participate("arithmetic", rows(40, "arithmetic")), judgements=judgements))
    assert task.grpo_settings(GrpoSettings(), time.monotonic()).steps == steps


def test_judgements_that_allow_no_step_are_refused(participate):
    task = read_visible(replace(participate("arithmetic", rows(40, "arithmetic")), judgements=300))
    with pytest.raises(ConfigError, match=r"300 judgements are too few .* raise budget\.judgements"):
        task.grpo_settings(GrpoSettings(), time.monotonic())


@pytest.mark.parametrize(("judgements", "n_items"), [(None, 12), (10_000, 12), (100, 8), (44, 1)])
def test_no_more_items_are_attempted_than_judgements_allow(participate, judgements, n_items):
    me = replace(participate("arithmetic", rows(12, "arithmetic"), QUESTIONS), judgements=judgements)
    assert read_visible(me).n_attempted(AttemptSettings(rounds=2, attempts=4)) == n_items  # 3 x 12 are for measuring
    assert read_visible(replace(me, judgements=None)).n_attempted(AttemptSettings(share=0.5)) == len(me.train) // 2


@pytest.mark.engine
def test_attempts_that_cannot_be_paid_and_pairs_of_episodes_are_refused(participate):
    me = participate("household", rows(2))
    with pytest.raises(ConfigError, match="preference pairs compare single answers; use an agent that plays"):
        read_visible(me).preference_pairs(me.base, AttemptSettings(), 1)
    with pytest.raises(ConfigError, match=r"13 judgements are too few .* raise budget.judgements"):
        read_visible(replace(me, judgements=13)).n_attempted(AttemptSettings())


def test_one_kind_of_items_can_be_learned_from_alone(participate, monkeypatch):
    me = participate("arithmetic_pyfunc", rows(10, "arithmetic_pyfunc"), QUESTIONS)
    monkeypatch.setenv("AGENT2_TASK_TYPE", "pyfunc")
    task = read_visible(me)
    assert {item.payload["task_type"] for item in task.train} == {"pyfunc"} and len(task.train) == 5
    assert len(task.dev) == 10  # measured on all
    monkeypatch.setenv("AGENT2_TASK_TYPE", "chess")
    with pytest.raises(ConfigError, match="of the kinds arithmetic, pyfunc"):
        read_visible(me)


@pytest.mark.slow
def test_the_best_attempts_are_kept_and_pairs_prefer_what_the_scorer_does(participate, tmp_path):
    items = load_benchmark("arithmetic").items(Split.TRAIN, 60, None)
    base = make_model(tmp_path / "base", [(item.prompt, item.reference) for item in items], steps=100)
    me = replace(participate("arithmetic", rows(60, "arithmetic"), QUESTIONS), base=base)
    task, answers = read_visible(me), {item.prompt: item.reference for item in items}
    settings = AttemptSettings(attempts=4)
    imitated = task.rejection_sampling(base, settings, 1).rows
    assert 0 < len(imitated) <= 60 and all(row["answer"] == answers[row["prompt"]] for row in imitated)
    several = task.rejection_sampling(base, replace(settings, keep=4), 1).rows
    assert len(several) > len(imitated) and all(row["answer"] == answers[row["prompt"]] for row in several)
    pairs = task.preference_pairs(base, settings, 1)
    assert len(task.preference_pairs(base, replace(settings, keep=2), 1)) >= len(pairs)
    for pair in pairs:
        right = answers[pair["prompt"][0]["content"]]
        assert pair["chosen"][0]["content"] == right != pair["rejected"][0]["content"]
    with pytest.raises(ConfigError, match="none of 240 attempts earned anything"):
        task.rejection_sampling(make_model(tmp_path / "mute"), settings, 1)


ROLLOUT = Rollout("an item", 0, 0, RolloutStatus.COMPLETED, (), (), "yes", {}, Usage())


def test_attempts_are_worth_what_the_named_reward_says(participate, monkeypatch):
    """So a reward with partial credit ranks attempts whose scores are equal, and a control turns the order around."""
    monkeypatch.setenv("AGENT2_REWARD", "instructions_followed")
    half, none = (
        ScoredRollout(
            msgspec.structs.replace(ROLLOUT, attempt=number), Score(0.0, "", views={"instruction_level": share})
        )
        for number, share in enumerate((0.5, 0.0))
    )
    task = read_visible(participate("mini_ifeval", rows(4, "mini_ifeval"), QUESTIONS))
    assert [task.worth(scored) for scored in (half, none)] == [0.25, 0.0]
    assert task._best_of([none, half]) == [half, none]
    monkeypatch.setenv("AGENT2_REWARD", "inverted")
    assert read_visible(task.participant)._best_of([half, none]) == [half, none]
    unread = ScoredRollout(ROLLOUT, Score(None, "nobody could read it", Fault.JUDGE))
    assert task.worth(unread) is None


@pytest.mark.slow
def test_a_model_that_thinks_is_rewarded_for_its_answer_and_learns_every_token(participate, tmp_path):
    items = load_benchmark("arithmetic").items(Split.TRAIN, 60, None)
    chats = [(item.prompt, f"<think>hm</think>{item.reference}") for item in items]
    base = make_model(tmp_path / "base", chats, steps=150)
    me = replace(participate("arithmetic", rows(60, "arithmetic"), QUESTIONS), base=base)
    task, answers = read_visible(me), {item.prompt: item.reference for item in items}
    imitated = task.rejection_sampling(base, AttemptSettings(attempts=4), 1).rows
    assert imitated
    for row in imitated:
        assert row["answer"] == f"<think>hm</think>{answers[row['prompt']]}"
