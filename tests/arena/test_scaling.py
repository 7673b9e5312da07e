"""The recorded pipeline of a trial on other base models: what is refused, what is named, what a row says."""

import shutil

import pytest

from agent2.arena.plan import copy_trial, new_trial, resolve_trial
from agent2.arena.reproduction import reproduction_config
from agent2.arena.scale_rows import ScaleVerdict
from agent2.arena.scaling import (
    base_differences,
    count_weights,
    measured_row,
    recorded_row,
    refused_row,
    resolve_models,
    scaled_config,
)
from agent2.arena.trial import run_trial
from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.reports.scale_table import scale_table
from agent2.reports.text import DASH
from chaos.run import PROGRAM
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, SUBMIT_NOISY, quiet, write_agent, write_task


def test_a_model_that_cannot_be_played_is_refused_with_the_reason_and_the_others_are_kept(home, tmp_path):
    good, bare = write_checkpoint(tmp_path / "good"), write_checkpoint(tmp_path / "bare")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    config = bare / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"chat_template"', '"no_chat_template"'))
    unknown, broken, playable = resolve_models(["tiny-arithmetik", str(bare), str(good)], quiet)
    assert "did you mean 'tiny-arithmetic" in unknown.problem
    assert "template" in broken.problem
    assert playable.info is not None and playable.problem == ""
    row = refused_row(broken)
    assert row.verdict is ScaleVerdict.REFUSED and row.gain is None
    assert scale_table([row]).cells()[0][3:8] == [DASH] * 5
    with pytest.raises(ConfigError, match="template"):
        scaled_config(resolve_trial("arithmetic", "nop", 0), broken)


def test_no_model_and_a_model_twice_are_refused():
    with pytest.raises(ConfigError, match="at least one"):
        resolve_models([], quiet)
    with pytest.raises(ConfigError, match="named twice"):
        resolve_models(["tiny-arithmetic", "tiny-arithmetic"], quiet)


def test_another_size_is_no_difference_and_another_template_is(tmp_path):
    small = inspect_checkpoint(write_checkpoint(tmp_path / "small"))
    large = inspect_checkpoint(write_checkpoint(tmp_path / "large", hidden_size=64))
    assert base_differences(large, small) == ()
    assert count_weights(large) > count_weights(small)
    other = shutil.copytree(large.path, tmp_path / "other")
    template = other / "chat_template.jinja"
    template.write_text(template.read_text() + "\n{# another #}")
    assert base_differences(inspect_checkpoint(other), small) == ("another chat template",)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "verdict"), [(SUBMIT_NOISY, ScaleVerdict.WORKS), (SUBMIT_COPY, None)])
def test_the_program_runs_again_on_a_larger_base_which_is_its_own_control(home, tmp_path, program, verdict):
    n_items = {"train": 10, "dev": 4, "test_public": 40, "test_private": 60}
    task = write_task(tmp_path, n_items=n_items)
    source = new_trial(str(task), str(write_agent(tmp_path / "agent", program)), 0, tmp_path / "trials", trial_id="one")
    run_trial(source, quiet, PROGRAM)
    first, recorded = recorded_row(source, quiet)
    assert first.is_recorded and first.trial == "one"
    larger = write_checkpoint(tmp_path / "larger", hidden_size=64)
    (larger / "model.safetensors").chmod(0o644)
    (model,) = resolve_models([str(larger)], quiet)
    root = copy_trial(source, scaled_config(reproduction_config(source), model), tmp_path / "trials")
    run_trial(root, quiet, PROGRAM)
    row = measured_row(root, model, recorded)
    assert row.n_weights > first.n_weights and row.differences == () and row.minutes > 0
    if verdict is None:
        assert row.verdict is ScaleVerdict.FAILS and row.gain is None
    else:
        assert row.verdict is verdict and row.gain.change.low > 0
