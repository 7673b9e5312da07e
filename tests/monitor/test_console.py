import pytest

from agent2.errors import ConfigError
from agent2.monitor.readers import read_log

BAR = "  1%|          | 1/100 [00:01<02:00,  1.2s/it]"


def log_of(tmp_path, text, name="run.log"):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return read_log(path)


def points(log, name):
    series = log.series[name]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def test_printed_dicts_are_counted_and_the_last_launch_counts(tmp_path):
    rows = [
        "Loading model {'a': 1} of 3",
        "{'loss': 0.9, 'reward': 0.1, 'epoch': 0.5}",
        "{'loss': 0.9, 'reward': 0.2, 'epoch': 0.6}",
        "{'loss': 0.8, 'reward': 0.3, 'epoch': 0.01}" + BAR,
        f"{BAR}\r{{'loss': '0.7', 'reward': '0.45', 'reward_std': nan, 'epoch': '0.02'}}",
        "{'train_runtime': 3.0, 'train_loss': 0.75, 'epoch': 1.0}",
    ]
    log = log_of(tmp_path, "\n".join(rows[1:]))
    assert points(log, "reward") == {1: 0.3, 2: 0.45}
    assert points(log, "loss") == {1: 0.8, 2: 0.7}
    assert any("counted" in note for note in log.notes) and any("2 launches" in note for note in log.notes)
    assert [reading.name for reading in log.not_finite] == ["reward_std"]


def test_lines_of_verl_keep_their_steps_without_colours_and_prefix(tmp_path):
    line = "\x1b[36m(TaskRunner pid=7)\x1b[0m step:{} - critic/rewards/mean:{} - actor/entropy:np.float64(0.5)\n"
    text = "step: none\n" + "".join(line.format(step, step / 10) for step in (1, 2, 5))
    log = log_of(tmp_path, text, "verl.out")
    assert points(log, "reward") == {1: 0.1, 2: 0.2, 5: 0.5}
    assert points(log, "entropy") == {1: 0.5, 2: 0.5, 5: 0.5} and not log.notes


@pytest.mark.parametrize(
    "text",
    ["", "hello", "{'name': 'x'}", "{'loss': __import__('os')}", "{" * 5000, "step:1", "'loss': 0.1, 'epoch': 1"],
)
def test_an_output_without_measurements_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match="no line of it is a dict of measurements"):
        log_of(tmp_path, text)
