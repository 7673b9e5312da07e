import json
import time
from dataclasses import replace

import pytest

from agent2.integrity import Effect
from agent2.integrity.drift import drift_check
from agent2.models.checkpoint import inspect_checkpoint
from grading_builders import TEMPLATE
from integrity_builders import make_checkpoint


@pytest.fixture
def base(tmp_path):
    return make_checkpoint(tmp_path / "base")


def changed(tmp_path, **files):
    folder = make_checkpoint(tmp_path / "own").path
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return inspect_checkpoint(folder)


def effects(candidate, base):
    return [(finding.name, finding.effect) for finding in drift_check(candidate, base, "submission 1").findings]


def test_the_same_files_drift_nowhere(base, tmp_path):
    assert effects(changed(tmp_path), base) == []


def test_entries_that_saving_alone_changes_are_no_drift(base, tmp_path):
    config = json.loads((base.path / "config.json").read_text()) | {"transformers_version": "9", "dtype": "bfloat16"}
    generation = json.dumps({"transformers_version": "9", "_from_model_config": True})
    assert effects(changed(tmp_path, config__json=json.dumps(config), generation_config__json=generation), base) == []


def test_a_generation_config_of_its_own_is_noted(base, tmp_path):
    candidate = changed(tmp_path, generation_config__json=json.dumps({"temperature": 0.0}))
    assert effects(candidate, base) == [("generation config differs", Effect.NOTE)]


def test_another_norm_constant_is_noted(base, tmp_path):
    config = json.loads((base.path / "config.json").read_text()) | {"rms_norm_eps": 1e-3}
    assert effects(changed(tmp_path, config__json=json.dumps(config)), base) == [("model config differs", Effect.NOTE)]


def test_a_template_with_other_spacing_is_noted(base, tmp_path):
    candidate = changed(tmp_path, chat_template__jinja=TEMPLATE.replace("<user>", "<user> "))
    assert effects(candidate, base) == [("chat template differs", Effect.NOTE)]


def test_a_template_that_carries_answers_is_flagged(base, tmp_path):
    answers = "".join(
        f"{{% if '{n} + 1' in messages[0].content %}}the answer is {n + 1}{{% endif %}}" for n in range(99)
    )
    candidate = changed(tmp_path, chat_template__jinja=TEMPLATE + answers)
    assert effects(candidate, base) == [("chat template carries text", Effect.FLAG)]


def test_a_template_that_loops_is_flagged_and_never_rendered(base, tmp_path):
    candidate = changed(tmp_path, chat_template__jinja="{% for i in range(999999999999) %}x{% endfor %}")
    assert effects(candidate, base) == [("chat template loops", Effect.FLAG)]


@pytest.mark.parametrize("piece", ["{{", "{% ", "{#'", "}}", "'\"", "{% for i in range( "])
def test_a_hostile_template_is_looked_at_in_linear_time(base, tmp_path, piece):
    candidate = changed(tmp_path, chat_template__jinja=piece * 200_000)
    started = time.process_time()
    names = effects(candidate, base)
    assert time.process_time() - started < 20  # the quadratic expression took hours
    assert names in ([("chat template carries text", Effect.FLAG)], [("chat template differs", Effect.NOTE)])


def test_a_loop_of_more_digits_than_python_takes_is_flagged(base, tmp_path):
    candidate = changed(tmp_path, chat_template__jinja="{% for i in range(" + "9" * 10_000 + ") %}x{% endfor %}")
    assert effects(candidate, base) == [("chat template loops", Effect.FLAG)]


def test_a_file_too_large_to_parse_is_reported(base, tmp_path):
    candidate = changed(tmp_path)
    (candidate.path / "generation_config.json").write_text(json.dumps({"x": "y" * (17 << 20)}))
    check = drift_check(replace(candidate, files=(*candidate.files, "generation_config.json")), base, "submission 1")
    assert not check.is_complete and "16777216" in check.looked_at
