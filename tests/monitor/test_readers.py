import json
import sqlite3
import struct
import zlib
from contextlib import closing

import numpy as np
import pytest

from agent2.errors import ConfigError
from agent2.monitor.readers import read_log, read_logs
from monitor_builders import healthy, write_jsonl


def test_our_json_lines_are_read_under_canonical_names(tmp_path):
    log = read_log(write_jsonl(tmp_path / "train_log.jsonl", healthy()))
    assert {"reward", "kl", "entropy", "length", "cost", "gsm8k_exact_match"} <= set(log.series)
    assert len(log.series["reward"]) == 80 and len(log.series["gsm8k_exact_match"]) == 10
    assert log.last_step == 400 and log.notes == ()


def test_a_trainer_state_of_trl_is_read(tmp_path):
    history = [{"step": 5, "epoch": 0.1, "reward": 0.3, "completions/mean_length": 12.0}, {"step": 10, "reward": 0.4}]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 10, "log_history": history}))
    log = read_log(path)
    assert log.series["reward"].values.tolist() == [0.3, 0.4]
    assert log.series["length"].steps.tolist() == [5]
    assert "epoch" not in log.series


def test_the_newest_trainer_state_of_a_folder_counts(tmp_path):
    for step in (50, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        rows = [{"step": s, "reward": s / 100} for s in range(10, step + 1, 10)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    assert read_log(tmp_path).last_step == 100


def test_tensorboard_events_are_read(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    for step in range(3):
        writer.add_scalar("train/reward", step / 10, step)
    writer.close()
    log = read_log(tmp_path)
    assert np.allclose(log.series["reward"].values, [0.0, 0.1, 0.2])


def test_a_wandb_history_and_a_wandb_table_say_the_same(tmp_path):
    history = tmp_path / "wandb-history.jsonl"
    history.write_text('{"_step": 0, "train/reward": 0.1, "_runtime": 3}\n{"_step": 1, "train/reward": 0.2}\n')
    table = tmp_path / "export.csv"
    table.write_text(
        '"Step","run-1 - train/reward","run-1 - train/reward__MIN","run-1 - train/reward__MAX"\n'
        '"0","0.1","0.1","0.1"\n"1","0.2","0.2","0.2"\n"2","","",""\n'
    )
    first, second = read_log(history), read_log(table)
    assert first.series["reward"].values.tolist() == second.series["reward"].values.tolist() == [0.1, 0.2]
    assert set(first.series) == set(second.series) == {"reward"}


def test_a_table_of_two_runs_is_refused(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text('"Step","a - train/reward","b - train/reward"\n"0","0.1","0.2"\n')
    with pytest.raises(ConfigError, match="2 runs"):
        read_log(path)


def test_steps_out_of_order_are_sorted_and_said(tmp_path):
    rows = [{"step": s, "reward": s / 10} for s in (1, 3, 2, 4)]
    log = read_log(write_jsonl(tmp_path / "log.jsonl", rows))
    assert log.series["reward"].values.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert "out of order" in log.notes[0] and "log.jsonl:3" in log.notes[0]


def test_of_two_values_at_one_step_the_later_counts_and_it_is_said(tmp_path):
    rows = [{"step": 1, "reward": 0.1}, {"step": 1, "reward": 0.9}]
    log = read_log(write_jsonl(tmp_path / "log.jsonl", rows))
    assert log.series["reward"].values.tolist() == [0.9]
    assert "appears twice" in log.notes[0]


def test_values_that_are_no_numbers_are_left_out_and_said(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "kl": NaN}\n{"step": 2, "kl": 0.5}\n{"step": 3, "kl": "Infinity"}\n')
    log = read_log(path)
    assert log.series["kl"].values.tolist() == [0.5]
    assert len(log.notes) == 2


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "rew')
    log = read_log(path)
    assert log.series["reward"].steps.tolist() == [1]
    assert "last line (2)" in log.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.jsonl", '{"step": 1, "reward": 1}\nnonsense\n{"step": 2}\n', "log.jsonl:2"),
        ("log.jsonl", '{"reward": 1}\n', "no usable step"),
        ("log.jsonl", '{"step": "soon", "reward": 1}\n', "no usable step"),
        ("log.jsonl", "[1]\n", "must be an object"),
        ("log.jsonl", '{"step": 1, "note": "x"}\n', "no number at any step"),
        ("trainer_state.json", "{}", "log_history"),
        ("trainer_state.json", "{", "is not JSON"),
        ("export.csv", "a,b\n1,2\n", "no step column"),
        ("export.csv", "Step,reward\n1,high\n", "'high'"),
        ("log.txt", "x", "no line of it"),
        ("log.zip", "x", "known shape"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_the_place(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        read_log(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_log(tmp_path / "none.jsonl")


@pytest.mark.parametrize("step", ["99999999999999999999999", "1e400", "NaN", "true"])
def test_a_step_that_no_run_has_is_refused(tmp_path, step):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"step": {step}, "reward": 1}}\n')
    with pytest.raises(ConfigError, match="no usable step"):
        read_log(path)


def write_events(folder, points, second):
    """One launch of a run, as a file of its own; its name carries the second of its start."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(folder))
    for step, value in points:
        writer.add_scalar("train/reward", value, step)
    writer.add_scalar("train/train_loss", 9.0, points[-1][0])
    writer.close()
    (file,) = [file for file in folder.iterdir() if ".launch" not in file.name]
    file.rename(folder / f"events.out.tfevents.{second}.host.launch")


def test_a_second_launch_in_a_folder_is_not_joined_to_the_first(tmp_path):
    write_events(tmp_path, [(step, 0.5) for step in range(10, 60, 10)], 1_700_000_000)
    write_events(tmp_path, [(step, 0.1) for step in range(10, 40, 10)], 1_700_000_100)
    log = read_log(tmp_path)
    assert log.series["reward"].values.tolist() == pytest.approx([0.1, 0.1, 0.1])
    assert any("another launch that begins at step 10" in note for note in log.notes)
    assert "loss" not in log.series and "train_loss" not in log.series


def test_a_launch_that_resumes_goes_on_with_the_series(tmp_path):
    write_events(tmp_path, [(step, 0.5) for step in (10, 20)], 1_700_000_000)
    write_events(tmp_path, [(step, 0.6) for step in (30, 40)], 1_700_000_100)
    log = read_log(tmp_path)
    assert log.series["reward"].steps.tolist() == [10, 20, 30, 40] and log.notes == ()


def test_runs_side_by_side_are_read_one_by_one(tmp_path):
    for name, value in (("one", 0.1), ("two", 0.2)):
        (tmp_path / name).mkdir()
        write_events(tmp_path / name, [(10, value), (20, value)], 1_700_000_000)
    assert [(log.name, float(log.series["reward"].values[0])) for log in read_logs(tmp_path)] == [
        ("one", pytest.approx(0.1)),
        ("two", pytest.approx(0.2)),
    ]
    with pytest.raises(ConfigError, match=r"contains 2 runs \(one, two\)"):
        read_log(tmp_path)


def test_a_trackio_database_is_read(tmp_path):
    path = tmp_path / "project.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
        )
        rows = [("a", step, json.dumps({"train/reward": 0.1 * step, "note": "text"})) for step in range(3)]
        connection.executemany(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('x', 't', ?, ?, ?)", rows
        )
        connection.commit()
    (log,) = read_logs(path)
    assert (log.name, log.series["reward"].values.tolist()) == ("a", pytest.approx([0.0, 0.1, 0.2]))
    (tmp_path / "other.db").write_text("no database")
    with pytest.raises(ConfigError, match="not a trackio database"):
        read_logs(tmp_path / "other.db")


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"step": 1, "reward": 0.5, "sample": "a\u2028b\u0085c"}, ensure_ascii=False) + "\n")
    assert read_log(path).series["reward"].values.tolist() == [0.5]


RECORDS = (  # `history` records as wandb 0.31 wrote them for three calls of `wandb.log`
    "08091297010a25120a5f74696d657374616d70820116312e37393533363039363739323937373433652b30390a1812085f72756e74696d"
    "6582010b322e3038313431323932360a0b12055f73746570820101300a12120a747261696e2f6c6f7373820103302e350a17120f747261"
    "696e2f677261645f6e6f726d8201034e614e0a181211747261696e2f676c6f62616c5f7374657082010231301200",
    "080c126e0a1a121167736d386b5f65786163745f6d61746368820104302e32350a25120a5f74696d657374616d70820116312e37393533"
    "363039363739333435343839652b30390a1812085f72756e74696d6582010b322e3038353233393431340a0b12055f7374657082010131"
    "12020801",
    "080f1291010a13120a747261696e2f6c6f7373820104302e32350a0f12066e6573746564120161820101310a181211747261696e2f676c"
    "6f62616c5f7374657082010232300a24120a5f74696d657374616d70820115312e373935333630393637393338303639652b30390a1812"
    "085f72756e74696d6582010b322e3038363031303336320a0b12055f737465708201013212020802",
)


def write_wandb(path, records):
    """W&B's container: blocks of 32 KiB, in which a record that does not fit continues in the next one."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        remainder, is_first = record, True
        while is_first or remainder:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += bytes(room)
                continue
            chunk, remainder = remainder[: room - 7], remainder[room - 7 :]
            kind = (1 if not remainder else 2) if is_first else (4 if not remainder else 3)
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + chunk), len(chunk), kind) + chunk
            is_first = False
    path.write_bytes(bytes(data))
    return path


def filler(n):
    """A record of another kind, of n bytes and a few: output of the console."""
    return b"\x22" + bytes([n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14]) + bytes(n)


@pytest.mark.parametrize("n", [0, 32768 - 7 - 7 - 4 - 3, 40_000, 70_000])
def test_an_offline_file_of_wandb_is_read_at_the_trainers_steps(tmp_path, n):
    records = [bytes.fromhex(text) for text in RECORDS]
    path = write_wandb(tmp_path / "run-a.wandb", [filler(n), records[0], filler(n), *records[1:]])
    log = read_log(path)
    assert log.series["loss"].steps.tolist() == [10, 20] and log.series["loss"].values.tolist() == [0.5, 0.25]
    assert log.series["gsm8k_exact_match"].steps.tolist() == [10], "logged without a step of its own, after step 10"
    assert [(reading.name, reading.step) for reading in log.not_finite] == [("grad_norm", 10)]
    assert set(log.series) == {"loss", "gsm8k_exact_match", "nested.a"}
    assert read_log(tmp_path).series["loss"].values.tolist() == [0.5, 0.25]


def test_an_offline_file_of_wandb_that_is_still_being_written_is_read_so_far(tmp_path):
    path = write_wandb(tmp_path / "run-a.wandb", [bytes.fromhex(text) for text in RECORDS])
    whole = path.read_bytes()
    for cut in (3, 40, 155):
        path.write_bytes(whole[:-cut])
        log = read_log(path)
        assert log.series["loss"].values.tolist() == [0.5] and "still being written" in log.notes[0]


@pytest.mark.parametrize(
    ("at", "message"), [(1, "does not begin as a W&B file"), (60, "is damaged"), (13, "is damaged")]
)
def test_a_damaged_offline_file_of_wandb_is_refused_with_the_place(tmp_path, at, message):
    path = write_wandb(tmp_path / "run-a.wandb", [bytes.fromhex(text) for text in RECORDS])
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=message):
        read_log(path)


def test_a_record_of_wandb_that_is_no_message_is_refused(tmp_path):
    path = write_wandb(tmp_path / "run-a.wandb", [b"\x12\x7f\x01"])
    with pytest.raises(ConfigError, match=r"record at byte 7 cannot be read \(field 2 is longer"):
        read_log(path)


def test_a_second_training_in_one_run_of_wandb_is_not_joined_to_the_first(tmp_path):
    """Two trainers in one program log to one run, unless `wandb.finish` is called between them."""
    records = [bytes.fromhex(text) for text in RECORDS]
    log = read_log(write_wandb(tmp_path / "run-a.wandb", [*records, records[0]]))
    assert log.series["loss"].steps.tolist() == [10] and "another launch that begins at step 10" in log.notes[0]


def test_a_launch_that_resumes_from_a_checkpoint_replaces_what_came_after_it(tmp_path):
    write_events(tmp_path, [(step, 0.5) for step in (10, 20, 30)], 1_700_000_000)
    write_events(tmp_path, [(step, 0.6) for step in (30, 40)], 1_700_000_100)
    log = read_log(tmp_path)
    assert log.series["reward"].values.tolist() == pytest.approx([0.5, 0.5, 0.6, 0.6])


def test_timings_and_epochs_are_no_measurements(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 1, "train/epoch": 0.1, "profiling/Time taken: GRPOTrainer.reward": 0.2}\n')
    assert set(read_log(path).series) == {"loss"}


FIRST_LAUNCH = [{"step": step, "reward": step / 10, "kl": 0.1} for step in range(1, 11)]
SECOND_LAUNCH = [{"step": step, "reward": 5.0, "kl": 0.2} for step in range(7, 10)]


def as_table(path, rows):
    path.write_text("Step,reward,kl\n" + "".join(f"{row['step']},{row['reward']},{row['kl']}\n" for row in rows))
    return path


def as_database(path, rows):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_name TEXT, step INTEGER, metrics TEXT)")
        stored = [("a", row["step"], json.dumps({key: row[key] for key in ("reward", "kl")})) for row in rows]
        connection.executemany("INSERT INTO metrics (run_name, step, metrics) VALUES (?, ?, ?)", stored)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("write", "name"), [(write_jsonl, "log.jsonl"), (as_table, "log.csv"), (as_database, "log.db")]
)
def test_a_relaunch_that_writes_to_the_same_log_replaces_what_came_after_its_checkpoint(tmp_path, write, name):
    log = read_log(write(tmp_path / name, [*FIRST_LAUNCH, *SECOND_LAUNCH]))
    assert log.last_step == 9
    assert log.series["reward"].values.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 5.0, 5.0, 5.0])
    assert "another launch that begins at step 7, where the one before had reached 10" in log.notes[0]


def test_a_late_line_and_quantities_that_are_written_one_after_the_other_are_no_relaunch(tmp_path):
    late = [*FIRST_LAUNCH[:5], {"step": 3, "reward": 9.0}, *FIRST_LAUNCH[5:]]
    assert read_log(write_jsonl(tmp_path / "late.jsonl", late)).last_step == 10
    blocks = [{"step": row["step"], name: row[name]} for name in ("reward", "kl") for row in FIRST_LAUNCH]
    log = read_log(write_jsonl(tmp_path / "blocks.jsonl", blocks))
    assert len(log.series["reward"]) == len(log.series["kl"]) == 10 and log.notes == ()


def test_measurements_inside_an_object_are_read_as_verl_writes_them(tmp_path):
    rows = [{"step": step, "data": {"critic/rewards/mean": 0.1 * step, "actor": {"entropy": 1.0}}} for step in (1, 2)]
    log = read_log(write_jsonl(tmp_path / "verl.jsonl", rows))
    assert log.series["reward"].values.tolist() == pytest.approx([0.1, 0.2])
    assert log.series["entropy"].values.tolist() == [1.0, 1.0]


def trackio_db(path, rows):
    """rows: (run_id, run_name, step, metrics as text), as trackio writes them since it has run ids."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER, "
            "metrics TEXT)"
        )
        connection.executemany(
            "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)", rows
        )
        connection.commit()
    return path


def test_of_several_runs_of_one_name_in_a_database_the_last_is_read(tmp_path):
    first = [("a1", "tiny", step, json.dumps({"loss": 9.0})) for step in range(1, 30)]
    second = [("b2", "tiny", step, json.dumps({"loss": 1.0})) for step in range(5, 10)]
    other = [("c3", "wide", step, json.dumps({"loss": 2.0})) for step in range(1, 4)]
    tiny, wide = read_logs(trackio_db(tmp_path / "p.db", [*first, *second, *other]))
    assert tiny.series["loss"].steps.tolist() == [5, 6, 7, 8, 9] and set(tiny.series["loss"].values) == {1.0}
    assert tiny.notes == ("2 runs have the name 'tiny': only the last one (b2) is read",)
    assert wide.name == "wide" and not wide.notes


def test_a_damaged_row_of_a_database_is_named(tmp_path):
    path = trackio_db(tmp_path / "p.db", [("a", "tiny", 1, '{"loss": 1}'), ("a", "tiny", 2, '{"loss"')])
    with pytest.raises(ConfigError, match="metrics of row 2 are not JSON"):
        read_logs(path)


def test_columns_of_one_name_are_noted(tmp_path):
    path = tmp_path / "wandb.csv"
    path.write_text("Step,tiny - loss,tiny - loss\n1,9,1\n2,9,2\n")
    (log,) = read_logs(path)
    assert log.series["loss"].values.tolist() == [1.0, 2.0]
    assert log.notes == ("2 columns have the name 'tiny - loss': only the last one is read",)


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([*range(1, 11), 6], [1, 2, 3, 4, 5, 6]),  # just begun again
        ([*range(1, 11), 6, 16], [1, 2, 3, 4, 5, 6, 16]),  # logs more seldom than before
        ([1, 2, 3, 5, 4, 6], [1, 2, 3, 4, 5, 6]),  # one line came late
        ([1, 2, 3, 5, 4], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 1, 2, 2.0, 3, 2, 3, 4], [1, 2, 3, 4]),  # three launches
    ],
)
def test_the_last_launch_is_followed_from_its_first_line_on(tmp_path, steps, kept):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in steps))
    assert read_log(path).series["loss"].steps.tolist() == kept


def test_a_log_of_an_evaluation_is_sent_to_the_import(tmp_path):
    path = tmp_path / "samples_x.jsonl"
    path.write_text('{"doc_id": 0, "target": "5", "exact_match": 1.0}\n')
    with pytest.raises(ConfigError, match=r"samples_x.jsonl:1 has no usable step .*agent2 cards import"):
        read_log(path)


def test_a_log_that_is_not_there_is_called_so(tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder; pass the trainer's output folder"):
        read_log(tmp_path / "nowhere")
