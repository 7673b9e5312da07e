import json
import os

import msgspec
import pytest

from agent2.arena.agent_files import MAX_NAME_CHARS, MAX_VALUES, find_metrics, record_metrics
from agent2.arena.trial_folder import read_events


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
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 3, "t": 1017.5, "loss": 1}\nnot json\n{"loss": 2}\n[1]\n')
    os.utime(log, (1020, 1020))
    (point,) = find_metrics(tmp_path)
    assert (point.t, point.step, dict(point.values)) == (1017.5, 3, {"loss": 1.0})


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


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 1, "a": ' + b"9" * 400 + b"}",
        b'{"step": 1, "a": ' + b"9" * 5000 + b"}",
        b'{"step": 1, "a": 1e400}',
        b'{"step": 1, "note": "\xff"}',
        b'{"step": 1e300, "a": 1}',
        b'{"step": -99999999999999999999999999, "a": 1}',
        b'{"step": 1, "a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"step": 1, "t": 1e300}',
    ],
)
def test_a_hostile_line_is_left_out_and_the_next_is_read(tmp_path, line):
    (tmp_path / "log.jsonl").write_bytes(line + b'\n{"step": 2, "loss": 1}\n')
    assert [(p.step, dict(p.values)) for p in find_metrics(tmp_path)] == [(2, {"loss": 1.0})]


def test_a_loss_that_is_no_number_does_not_hide_the_rest_of_the_log(tmp_path):
    (tmp_path / "trainer_state.json").write_text(
        '{"log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": NaN, "lr": 0.1}]}'
    )
    assert [(p.step, dict(p.values)) for p in find_metrics(tmp_path)] == [(1, {"loss": 0.5}), (2, {"lr": 0.1})]


def test_names_are_cut_and_cleaned_so_that_they_can_be_kept(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(
        b'{"step": 1, "\\ud800": 1, "nan": NaN, "' + b"k" * 1_000_000 + b'": 2}\n'
        b'{"step": 2' + b"".join(b', "k%d": 1' % number for number in range(5000)) + b"}\n"
    )
    first, second = find_metrics(tmp_path)
    assert max(len(name) for name in first.values) <= MAX_NAME_CHARS
    assert len(second.values) <= MAX_VALUES
    for point in (first, second):
        msgspec.json.encode(point)


def test_a_time_that_is_no_moment_of_the_trial_gives_way_to_the_files_own(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 3, "t": 1e18, "loss": 1}\n')
    (point,) = find_metrics(tmp_path)
    assert point.t == (tmp_path / "log.jsonl").stat().st_mtime


def test_points_are_written_whole_and_a_second_time_replaces_them(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "log.jsonl").write_text('{"step": 3, "t": 17.5, "loss": 1}\n')
    for _ in range(2):
        record_metrics(tmp_path / "work", tmp_path / "events" / "metrics.jsonl")
    (row,) = read_events(tmp_path / "events" / "metrics.jsonl").rows
    assert (row["event"], row["step"], row["values"]) == ("metric", 3, {"loss": 1})
