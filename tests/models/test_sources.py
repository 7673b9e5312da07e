import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent2.errors import CheckpointError, ConfigError
from agent2.models import sources
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.loading import DTYPES as LOADED_DTYPES
from agent2.models.sources import (
    BY_SERVER,
    DTYPES,
    CheckpointSource,
    LoadSettings,
    SourceKind,
    distinctly_named,
    find_checkpoint,
    with_distinct_names,
)
from agent2.records import Message, SamplingSettings
from model_builders import make_model
from served_fakes import chat, endpoint

SCRIPT = """
def shout(messages):
    return messages[-1].content.upper()

number = 7
"""


def answer_of(source):
    sampler = source.open()
    sampler.submit(0, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    ((_, completion),) = sampler.collect()
    sampler.close()
    return completion


def test_the_number_formats_named_without_torch_are_those_that_can_be_loaded():
    assert set(DTYPES) == set(LOADED_DTYPES)


def test_a_folder_is_a_model_in_this_process(tmp_path):
    folder = make_model(tmp_path / "tiny")
    source = find_checkpoint(str(folder), LoadSettings(device="cpu"))
    info = inspect_checkpoint(folder)
    assert (source.kind, source.name, source.dtype) == ("hf", "tiny", "float32")
    assert (source.digest, source.chat_template_digest) == (info.content_digest, info.chat_template_digest)
    assert answer_of(source).fault is None


def test_a_model_that_does_not_fit_into_memory_is_refused_with_the_figures_before_it_is_loaded(tmp_path, monkeypatch):
    source = find_checkpoint(str(make_model(tmp_path / "tiny")), LoadSettings(device="cpu"))
    monkeypatch.setattr(sources, "SMALL_BYTES", 0)
    assert answer_of(source).fault is None
    monkeypatch.setitem(sources.MEMORY_FACTORS, "float32", 1e12)
    with pytest.raises(CheckpointError, match=r"tiny: its \d+ million weights take about .* GiB are free; close"):
        source.open()


def test_fewer_answers_at_once_are_proposed_where_their_caches_are_what_does_not_fit(tmp_path, monkeypatch):
    folder = str(make_model(tmp_path / "tiny"))
    info = inspect_checkpoint(Path(folder))
    layers, width = info.config["num_hidden_layers"], info.config["head_dim"]
    answer = 1.5 * 512 * 2 * layers * info.config["num_key_value_heads"] * width * 4
    weights = 2.3 * 4 * sum(math.prod(tensor.shape) for tensor in info.tensors.values())
    monkeypatch.setattr(sources, "SMALL_BYTES", 0)
    monkeypatch.setattr(sources.psutil, "virtual_memory", lambda: SimpleNamespace(available=weights + 3.5 * answer))
    with pytest.raises(CheckpointError, match=r"64 answers at once of 512 tokens .* give --set run.max_in_flight=3, "):
        find_checkpoint(folder, LoadSettings(device="cpu")).open()
    assert answer_of(find_checkpoint(folder, LoadSettings(device="cpu", max_in_flight=3))).fault is None


def test_a_template_that_needs_tools_is_refused_before_anything_is_played_and_plain_prompts_work(tmp_path):
    folder = make_model(tmp_path / "tiny")
    template = "{% if not tools %}{{ raise_exception('tools are needed') }}{% endif %}{{ messages[0]['content'] }}"
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(CheckpointError, match=r"tiny: cannot be asked a plain question: .*tools are needed.*run.plain"):
        find_checkpoint(str(folder), LoadSettings(device="cpu")).open()
    assert answer_of(find_checkpoint(str(folder), LoadSettings(device="cpu", is_plain=True))).fault is None


def test_a_model_gives_the_text_of_each_token_if_it_is_told_to(tmp_path):
    folder = str(make_model(tmp_path / "tiny"))
    completion = answer_of(find_checkpoint(folder, LoadSettings(device="cpu", keeps_tokens=True)))
    assert len(completion.pieces) == len(completion.token_ids) == len(completion.logprobs) > 0
    assert completion.text in "".join(completion.pieces)
    assert answer_of(find_checkpoint(folder, LoadSettings(device="cpu"))).pieces is None


def test_a_model_can_be_given_less_context_than_it_has(tmp_path):
    folder = make_model(tmp_path / "tiny")
    completion = answer_of(find_checkpoint(str(folder), LoadSettings(device="cpu", context_length=2)))
    assert "the context of 2 leaves no room" in completion.reason


def test_an_address_is_an_endpoint_of_which_only_the_name_is_known():
    with endpoint(lambda body, number: chat("2")) as served:
        source = find_checkpoint(f"{served.url}?key=hidden#org/model")
        assert answer_of(source).text == "2"
    assert (source.kind, source.name, source.spec) == ("served", "model", f"{served.url}#org/model")
    assert (source.chat_template_digest, source.dtype) == (BY_SERVER, BY_SERVER)
    assert "the server's word" in source.caveats[0]
    assert source.digest != find_checkpoint(f"{served.url}#org/other").digest
    assert served.bodies[-1]["model"] == "org/model"


def test_a_context_limit_that_a_server_must_keep_is_said():
    source = find_checkpoint("http://127.0.0.1:1/v1#m", LoadSettings(context_length=512))
    assert any("512" in caveat for caveat in source.caveats)


def test_a_script_is_a_function_from_chat_to_reply(tmp_path):
    (tmp_path / "players.py").write_text(SCRIPT)
    source = find_checkpoint(f"scripted:{tmp_path}/players.py:shout")
    assert (source.kind, source.name) == ("scripted", "shout")
    assert answer_of(source).text == "1 + 1"
    (tmp_path / "players.py").write_text(SCRIPT + "\n")
    assert find_checkpoint(f"scripted:{tmp_path}/players.py:shout").digest != source.digest


def test_a_file_is_not_called_a_folder_that_is_missing(tmp_path):
    (tmp_path / "model.txt").write_text("weights")
    with pytest.raises(ConfigError, match=r"model\.txt': is a file, not a folder; give a FOLDER .*agent2 models list"):
        find_checkpoint(str(tmp_path / "model.txt"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere", "no such folder"),
        ("http://127.0.0.1:1/v1", "name the model after a #"),
        ("scripted:players.py", "scripted:FILE.py:FUNCTION"),
        ("scripted:players.txt:shout", "scripted:FILE.py:FUNCTION"),
        ("scripted:missing.py:shout", "cannot be read"),
    ],
)
def test_what_names_no_checkpoint_is_refused(spec, message):
    with pytest.raises(ConfigError, match=message):
        find_checkpoint(spec)


def test_an_empty_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError):
        find_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        (SCRIPT, "number", "is not a function"),
        (SCRIPT, "missing", "cannot be run"),
        ("1 / 0", "f", "ZeroDivisionError"),
    ],
)
def test_a_script_that_brings_no_function_is_refused(tmp_path, text, function, message):
    (tmp_path / "players.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        find_checkpoint(f"scripted:{tmp_path}/players.py:{function}").open()


def test_two_checkpoints_of_one_name_are_told_apart_and_one_checkpoint_is_not(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "players.py").write_text(f"# {folder}\n{SCRIPT}")
    first, second = (find_checkpoint(f"scripted:{tmp_path}/{folder}/players.py:shout") for folder in ("a", "b"))
    names = [source.name for source in with_distinct_names(first, second)]
    assert names == [f"shout-{first.digest[:8]}", f"shout-{second.digest[:8]}"]
    assert [source.name for source in with_distinct_names(first, first)] == ["shout", "shout"]


def test_folders_of_one_name_are_told_apart_by_the_folders_above_as_far_as_that_takes(tmp_path):
    def source(place, digest, name="model"):
        folder = tmp_path / place if place else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        spec = place or "http://127.0.0.1:8000#org/model"
        return CheckpointSource(spec, SourceKind.HF, name, digest, "", "float32", SimpleNamespace, folder=folder)

    def names(*sources):
        return [found.name for found in distinctly_named(sources)]

    sft, grpo = source("sft/model", "1" * 64), source("grpo/model", "2" * 64)
    assert names(sft, grpo, sft) == ["sft/model", "grpo/model", "sft/model"]
    assert names(source("a/x/model", "1" * 64), source("b/x/model", "2" * 64)) == ["a/x/model", "b/x/model"]
    deep = [source(f"{letter}/x/y/z/model", letter * 64) for letter in "ab"]
    assert names(*deep) == ["model-aaaaaaaa", "model-bbbbbbbb"], "not the folders of a whole machine"
    assert names(sft, sft) == ["model", "model"], "one checkpoint"
    assert names(sft, source("other", "2" * 64, "other")) == ["model", "other"], "of other names"
    assert names(sft, source("sft/model", "2" * 64)) == ["model-11111111", "model-22222222"], "one folder, two bases"
    assert names(sft, source("", "2" * 64)) == ["model-11111111", "model-22222222"], "an endpoint has no folder"
