import json

import pytest
import torch
from transformers import AutoModelForImageTextToText

from agent2.errors import CheckpointError, ConfigError, SamplerFailed
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.sources import LoadSettings, find_checkpoint
from agent2.models.vision import VisionSampler
from agent2.pictures import place_pictures
from agent2.records import Message, SamplingSettings, StopReason
from vision_builders import pictured_chat, save_seeing_model

N = 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_seeing_model(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def answers(sampler, chats, max_tokens=6, **settings):
    done = {}
    for number, chat in enumerate(chats):
        sampler.submit(number, chat, SamplingSettings(max_tokens=max_tokens, seed=number, **settings))
    while batch := sampler.collect():
        done.update(batch)
    return [done[number] for number in range(len(chats))]


def test_greedy_answers_are_those_of_generate_alone(folder):
    chats = [pictured_chat(number) for number in range(N)]
    completions = answers(VisionSampler(folder, max_batch=4), chats)
    model = AutoModelForImageTextToText.from_pretrained(folder, use_safetensors=True).eval()
    sampler = VisionSampler(folder, max_batch=1)
    for chat, completion in zip(chats, completions, strict=True):
        inputs = sampler._inputs_of([chat])
        with torch.no_grad():
            tokens = model.generate(**inputs, do_sample=False, max_new_tokens=6)[0, inputs["input_ids"].shape[1] :]
        assert list(completion.token_ids) == tokens.tolist()
    assert len({completion.token_ids for completion in completions}) > 3
    assert {completion.stop_reason for completion in completions} <= {StopReason.END, StopReason.LENGTH}


def test_samples_depend_on_the_request_and_not_on_the_batch(folder):
    chats = [pictured_chat(number) for number in range(N)]
    alone = answers(VisionSampler(folder, max_batch=1), chats, temperature=1.0, top_p=0.9)
    together = answers(VisionSampler(folder, max_batch=4), chats, temperature=1.0, top_p=0.9)
    assert [completion.token_ids for completion in alone] == [completion.token_ids for completion in together]
    for first, second in zip(alone, together, strict=True):
        assert first.logprobs == pytest.approx(second.logprobs, abs=1e-3)


def test_each_request_keeps_its_own_limit_and_temperature(folder):
    sampler, chat = VisionSampler(folder, max_batch=8), pictured_chat(0)
    for number in range(8):
        sampler.submit(
            number, chat, SamplingSettings(temperature=float(number % 2), max_tokens=1 + number, seed=number)
        )
    done = dict(sampler.collect())
    assert all(len(done[number].token_ids) <= 1 + number for number in range(8))
    assert len({done[number].token_ids[0] for number in (0, 2, 4, 6)}) == 1


def test_what_is_in_the_picture_changes_the_answer(folder):
    sampler = VisionSampler(folder)
    first, second = pictured_chat(0)[0], pictured_chat(3)[0]
    asked = [place_pictures("user", first.content, message.pictures) for message in (first, second)]
    completions = answers(sampler, [[message] for message in asked], max_tokens=1)
    assert completions[0].logprobs != pytest.approx(completions[1].logprobs, abs=1e-6)


def test_a_prompt_that_fills_the_context_is_a_fault_of_its_own_request_alone(folder):
    chats = [pictured_chat(0), [Message("user", "why " * 200)], pictured_chat(1)]
    completions = answers(VisionSampler(folder), chats)
    assert [completion.stop_reason is StopReason.FAULT for completion in completions] == [False, True, False]
    assert "leaves no room for an answer" in completions[1].reason


def test_a_chat_with_more_pictures_is_batched_with_one_of_fewer(folder):
    one, other = pictured_chat(0)[0], pictured_chat(1)[0]
    both = place_pictures("user", "Which of <image 1> and <image 2>?", [*one.pictures, *other.pictures])
    chats = [[one], [both], [other]]
    together = answers(VisionSampler(folder), chats)
    alone = answers(VisionSampler(folder, max_batch=1), chats)
    assert [completion.token_ids for completion in together] == [completion.token_ids for completion in alone]
    assert together[1].prompt_tokens > together[0].prompt_tokens


def test_token_ids_are_refused(folder):
    with pytest.raises(SamplerFailed, match="messages, not token ids"):
        VisionSampler(folder).submit(0, [1, 2, 3], SamplingSettings())


def test_a_folder_with_an_encoder_of_pictures_is_opened_as_a_model_that_sees(folder):
    source = find_checkpoint(str(folder))
    sampler = source.open()
    assert sampler.takes_pictures
    assert sampler.describe()["processor"] == "LlavaProcessor"
    sampler.close()
    assert "processor_config.json" in inspect_checkpoint(folder).files


def test_the_processor_is_part_of_the_checkpoint(tmp_path):
    folder = save_seeing_model(tmp_path / "model")
    before = inspect_checkpoint(folder).content_digest
    path = folder / "processor_config.json"
    settings = json.loads(path.read_text())
    settings["image_processor"]["image_mean"] = [0.4, 0.5, 0.5]
    path.write_text(json.dumps(settings))
    assert inspect_checkpoint(folder).content_digest != before


def change_settings(folder, name, **settings):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(
    "proposed",
    [
        {"repetition_penalty": 5.0},
        {"suppress_tokens": list(range(20))},
        {"max_time": 1e-9},
        {"num_return_sequences": 2},
        {"stop_strings": ["a"]},
        {"prompt_lookup_num_tokens": 5},
        {"penalty_alpha": 0.6, "top_k": 4},
    ],
)
def test_what_a_folder_proposes_for_drawing_changes_no_answer(folder, tmp_path, proposed):
    changed = save_seeing_model(tmp_path / "model")
    change_settings(changed, "generation_config.json", **proposed)
    chats = [pictured_chat(number) for number in range(3)]
    expected = answers(VisionSampler(folder), chats)
    assert [answer.token_ids for answer in answers(VisionSampler(changed), chats)] == [
        answer.token_ids for answer in expected
    ]


def test_a_model_that_fails_over_one_picture_answers_the_other_chats(folder, monkeypatch):
    sampler = VisionSampler(folder)
    generate = sampler._model.generate

    def fail_over_many(**inputs):
        if len(inputs["input_ids"]) > 1 or "pixel_values" in inputs:
            raise ValueError("Image features and image tokens do not match")
        return generate(**inputs)

    monkeypatch.setattr(sampler._model, "generate", fail_over_many)
    chats = [pictured_chat(0), [Message("user", "Why?")], [Message("user", "Where is it?")]]
    completions = answers(sampler, chats)
    assert [completion.stop_reason is StopReason.FAULT for completion in completions] == [True, False, False]
    assert "the model failed: ValueError: Image features" in completions[0].reason
    expected = answers(VisionSampler(folder), chats)
    assert [completion.token_ids for completion in completions[1:]] == [answer.token_ids for answer in expected[1:]]


@pytest.mark.parametrize("end", ["x", 2.5, True, [2, "x"], {"a": 1}])
def test_an_end_that_is_no_token_is_refused_in_one_line(tmp_path, end):
    folder = save_seeing_model(tmp_path / "model")
    change_settings(folder, "generation_config.json", eos_token_id=end)
    with pytest.raises(CheckpointError) as refused:
        VisionSampler(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("sizes", [{"size": {"height": 30_000, "width": 30_000}}, {"size": {"shortest_edge": 10**6}}])
def test_a_processor_that_makes_vast_pictures_is_refused(tmp_path, sizes):
    folder = save_seeing_model(tmp_path / "model")
    settings = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    change_settings(folder, "processor_config.json", image_processor=settings | sizes)
    with pytest.raises(CheckpointError, match="its processor makes pictures of size"):
        VisionSampler(folder)


@pytest.mark.parametrize("settings", [{"num_additional_image_tokens": 10**9}, {"patch_size": 1, "side": 4096}])
def test_a_processor_that_makes_vast_prompts_is_refused_before_any_is_made(tmp_path, settings):
    folder = save_seeing_model(tmp_path / "model")
    if side := settings.pop("side", None):
        images = json.loads((folder / "processor_config.json").read_text())["image_processor"]
        sizes = {"size": {"height": side, "width": side}}
        change_settings(folder, "processor_config.json", image_processor=images | sizes)
    change_settings(folder, "processor_config.json", **settings)
    with pytest.raises(CheckpointError, match="131072 tokens of one") as refused:
        VisionSampler(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / "processor_config.json").unlink(), "there is no processor"),
        (lambda folder: (folder / "processor_config.json").write_text("{}"), "processor"),
    ],
)
def test_a_model_without_a_processor_is_refused_in_one_line(tmp_path, spoil, reason):
    folder = save_seeing_model(tmp_path / "model")
    spoil(folder)
    with pytest.raises(CheckpointError, match=reason) as refused:
        find_checkpoint(str(folder)).open()
    assert "\n" not in str(refused.value)


def test_a_processor_that_asks_for_code_is_refused(tmp_path):
    folder = save_seeing_model(tmp_path / "model")
    path = folder / "processor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoProcessor": "evil.Evil"}}))
    with pytest.raises(CheckpointError, match="custom code"):
        find_checkpoint(str(folder))


def test_a_processor_that_names_a_model_elsewhere_is_refused(tmp_path):
    elsewhere = {"audio_tokenizer_class": "DacModel", "audio_tokenizer_name_or_path": str(tmp_path / "elsewhere")}
    folder = save_seeing_model(tmp_path / "model")
    change_settings(folder, "processor_config.json", audio_tokenizer=elsewhere)
    with pytest.raises(CheckpointError, match="names a model in another place"):
        find_checkpoint(str(folder))
    other = save_seeing_model(tmp_path / "other")
    (other / "audio_tokenizer_config.json").write_text(json.dumps(elsewhere))
    with pytest.raises(CheckpointError, match="names a model in another place"):
        find_checkpoint(str(other))


def test_the_plain_format_is_refused(folder):
    with pytest.raises(ConfigError, match="sees pictures"):
        find_checkpoint(str(folder), LoadSettings(is_plain=True)).open()
