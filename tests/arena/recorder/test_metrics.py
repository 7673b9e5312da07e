import json

from agent2.arena.recorder.metrics import find_metrics


def test_a_trainer_state_gives_its_log_history(tmp_path):
    state = {"log_history": [{"step": 1, "loss": 2.5, "epoch": 0.1}, {"step": 2, "reward": 0.5, "note": "x"}]}
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "trainer_state.json").write_text(json.dumps(state))
    points = find_metrics(tmp_path)
    assert [(p.file, p.step, dict(p.values)) for p in points] == [
        ("output/trainer_state.json", 1, {"loss": 2.5, "epoch": 0.1}),
        ("output/trainer_state.json", 2, {"reward": 0.5}),
    ]


def test_json_lines_with_a_step_are_points_and_their_own_time_counts(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 3, "t": 17.5, "loss": 1}\nnot json\n{"loss": 2}\n[1]\n')
    (point,) = find_metrics(tmp_path)
    assert (point.t, point.step, dict(point.values)) == (17.5, 3, {"loss": 1.0})


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "a": true, "b": "2", "c": null, "d": 4}\n')
    (point,) = find_metrics(tmp_path)
    assert dict(point.values) == {"d": 4.0}


def test_data_files_given_to_the_agent_are_no_metrics(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"step": 1, "loss": 1}\n')
    assert find_metrics(tmp_path) == []


def test_a_deeply_nested_file_is_no_crash(tmp_path):
    (tmp_path / "trainer_state.json").write_text("[" * 100_000)
    assert find_metrics(tmp_path) == []
