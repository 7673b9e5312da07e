import json

import pytest

from agent2.arena.base_models import ensure_base_model
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.training.interactive import played_words, read_interactive, show_line
from agent2.training.participant import Participant, read_participant

SCORING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12, "max_turns": 12}


@pytest.fixture
def participate(tmp_path, monkeypatch):
    """Writes a workspace for a benchmark and returns its participant."""

    def make(benchmark, environment, rows, base=None):
        (tmp_path / "data").mkdir()
        assignment = {"environment": environment, "benchmark": benchmark, "scoring": SCORING}
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


def rows(n):
    benchmark = load_benchmark("household")
    return [benchmark.visible_row(item) for item in benchmark.items(Split.TRAIN, n, None)]


def test_rows_become_items_that_can_be_played_and_the_design_says_how_they_are(participate):
    task = read_interactive(participate("household", "household", rows(3)))
    assert (task.me.environment, task.me.max_turns) == ("household", 12)
    world = task.world()()
    assert world.reset(task.train[0], 0)[0].content == task.train[0].prompt
    words = played_words(task, ["before training"])
    assert "3 dev games" in words and "at most 12 turns at temperature 1.0" in words


def test_an_assignment_of_questions_is_refused(participate):
    me = participate("arithmetic", "question", [{"id": "a", "prompt": "1 + 1 =", "answer": "2"}])
    with pytest.raises(ConfigError, match="questions, not episodes"):
        read_interactive(me)


@pytest.mark.slow
def test_a_checkpoint_is_played_on_every_dev_item(participate):
    task = read_interactive(participate("household", "household", rows(24)))
    score = task.evaluate_on_dev(ensure_base_model("tiny-household"))
    assert score.n_missing == 0
    assert 0 <= score.success < 0.4
    assert set(score.by_type) <= {item.payload["task_type"] for item in task.dev}
    assert task.evaluate_on_dev(ensure_base_model("tiny-household")) == score
    logged = [json.loads(line) for line in (task.me.output / "eval_log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["eval_dev"]) for line in logged] == [(0, score.success), (1, score.success)]


@pytest.mark.slow
def test_a_checkpoint_is_measured_handed_in_and_both_are_told(participate, monkeypatch, capsys):
    task = read_interactive(participate("household", "household", rows(4)))
    handed_in = []

    def submit(_, checkpoint, note):
        handed_in.append((checkpoint, note))
        return {"submission_id": 2, "score": 74.333, "baseline_score": 6.333, "error": None}

    monkeypatch.setattr(Participant, "submit", submit)
    base = ensure_base_model("tiny-household")
    task.check_and_submit(base, "as it was")
    success = json.loads((task.me.output / "eval_log.jsonl").read_text())["eval_dev"]
    assert handed_in == [(base, f"as it was, dev {100 * success:.1f}%")]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"as it was: {task.evaluate_on_dev(base)} of dev games",
        "submission 2: 74.3 (base model 6.3)",
    ]


def test_a_line_of_the_log_is_told_in_words(capsys):
    show_line({"phase": "grpo", "step": 4, "loss": 0.5, "success": 0.25, "t": 1.0})
    assert capsys.readouterr().out == "grpo step 4: loss 0.500, success 0.250\n"


@pytest.mark.parametrize("text", ["a lot", "0", "-1", "nan", "inf"])
def test_an_effort_that_is_no_number_above_zero_is_refused(participate, monkeypatch, text):
    monkeypatch.setenv("AGENT2_EFFORT", text)
    with pytest.raises(ConfigError, match="AGENT2_EFFORT"):
        participate("household", "household", rows(1))


def test_a_row_with_a_line_separator_in_its_text_is_one_row(participate):
    row = {"id": "a", "prompt": "one\u2028two\u0085three", "answer": "1"}
    assert participate("arithmetic", "question", [row]).train == [row]
