"""A folder with an adapter as a checkpoint: its base model, its identity, and what it answers."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from agent2.errors import CheckpointError
from agent2.models.adapters import merge_adapter
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.sources import PLAIN_DIGEST, LoadSettings, find_checkpoint
from agent2.records import Message, SamplingSettings
from agent2.scorers.judge_model import JudgeModel
from agent2.scorers.judges import RewardModelScorer
from model_builders import make_model

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with `base` and `adapter`; the adapter's config names the base by its path."""
    root = tmp_path_factory.mktemp("adapter")
    base = make_model(root / "base", steps=30)
    torch.manual_seed(0)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"),
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(root / "adapter")
    return root


@pytest.fixture
def folders(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    shutil.copytree(trained / "base", tmp_path / "base")
    shutil.copytree(trained / "adapter", tmp_path / "adapter")
    set_config(tmp_path / "adapter", base_model_name_or_path=str(tmp_path / "base"))
    return tmp_path


def set_config(folder, file="adapter_config.json", **entries):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def answers(source):
    sampler = source.open()
    for number in range(5):
        sampler.submit(number, [Message("user", f"{number} + 1")], SamplingSettings(temperature=0.0, max_tokens=4))
    completions = []
    while len(completions) < 5:
        completions += sampler.collect()
    described = sampler.describe()
    sampler.close()
    return {number: (completion.text, completion.logprobs) for number, completion in completions}, described


def found(folders, **settings):
    return find_checkpoint(str(folders / "adapter"), LoadSettings(device="cpu", **settings))


def test_an_adapter_is_played_as_the_merged_model_that_the_arena_would_play(folders):
    source = found(folders)
    merge_adapter(folders / "adapter", folders / "base", folders / "merged")
    given, described = answers(source)
    merged, _ = answers(find_checkpoint(str(folders / "merged"), LoadSettings(device="cpu")))
    base, _ = answers(find_checkpoint(str(folders / "base"), LoadSettings(device="cpu")))
    assert given == merged != base
    assert (source.kind, source.name, described["model"]) == ("hf", "adapter", str(folders / "adapter"))
    assert source.chat_template_digest == inspect_checkpoint(folders / "base").chat_template_digest
    assert found(folders, is_plain=True).chat_template_digest == PLAIN_DIGEST


def test_the_digest_covers_base_and_adapter(folders):
    digest = found(folders).digest
    assert digest == found(folders, base=str(folders / "base")).digest
    shutil.copytree(folders / "base", folders / "other")
    set_config(folders / "other", "generation_config.json", max_length=7)
    other = found(folders, base=str(folders / "other"))
    assert other.digest != digest
    assert any("merged into other" in caveat and "names" in caveat for caveat in other.caveats)
    set_config(folders / "adapter", lora_alpha=16)
    assert found(folders).digest not in (digest, other.digest, inspect_checkpoint(folders / "adapter").content_digest)


def test_a_base_of_the_local_hub_cache_is_found_and_nothing_is_downloaded(folders, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folders / "hub"))
    cached = folders / "hub" / "models--lab--sums"
    (cached / "snapshots").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folders / "base", cached / "snapshots" / ("0" * 40))
    digest = found(folders).digest
    set_config(folders / "adapter", base_model_name_or_path="lab/sums")
    assert find_checkpoint(str(folders / "adapter")).merges.base.path == cached / "snapshots" / ("0" * 40)
    set_config(folders / "adapter", base_model_name_or_path=str(folders / "base"))
    assert found(folders).digest == digest


@pytest.mark.parametrize("named", [None, "", 7, "lab/never-downloaded", "../no/such/folder", "a\0b"])
def test_a_base_that_cannot_be_found_is_refused_with_the_field_and_what_to_do(folders, named):
    set_config(folders / "adapter", base_model_name_or_path=named)
    with pytest.raises(CheckpointError, match=r"'base_model_name_or_path' is .*--set run\.base=FOLDER"):
        found(folders)
    assert found(folders, base=str(folders / "base")).merges is not None


def test_a_base_that_is_an_adapter_or_another_model_is_refused(folders, tmp_path):
    with pytest.raises(CheckpointError, match="is an adapter itself"):
        found(folders, base=str(folders / "adapter"))
    torch.manual_seed(0)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(folders / "base"),
        LoraConfig(r=4, target_modules=["lm_head"], task_type="CAUSAL_LM"),
    )
    model.save_pretrained(tmp_path / "head")
    with pytest.raises(CheckpointError, match="ties to each other"):
        find_checkpoint(str(tmp_path / "head"), LoadSettings(base=str(folders / "base")))


def test_an_adapter_of_another_base_is_refused_when_it_is_opened(folders, tmp_path):
    config = json.loads((folders / "base" / "config.json").read_text())
    wider = AutoModelForCausalLM.from_config(
        type(AutoModelForCausalLM.from_pretrained(folders / "base").config)(**{**config, "intermediate_size": 96})
    )
    shutil.copytree(folders / "base", tmp_path / "wider")
    wider.save_pretrained(tmp_path / "wider")
    with pytest.raises(CheckpointError, match="does not fit the base model"):
        found(folders, base=str(tmp_path / "wider")).open()


def test_neither_pickles_nor_code_of_base_or_adapter_are_read(folders):
    set_config(folders / "base", "config.json", auto_map={"AutoModelForCausalLM": "own.Model"})
    with pytest.raises(CheckpointError, match="'auto_map' asks for custom code"):
        found(folders)
    set_config(folders / "base", "config.json", auto_map={})
    set_config(folders / "adapter", auto_mapping={"parent_library": "os"}, target_modules=".*")
    with pytest.raises(CheckpointError, match="'target_modules' is"):
        found(folders)
    (folders / "adapter" / "adapter_model.safetensors").rename(folders / "adapter" / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"no adapter_model\.safetensors"):
        found(folders)


def test_where_a_folder_is_read_and_not_played_an_adapter_is_refused(folders):
    for make in (lambda name: RewardModelScorer(name), lambda name: JudgeModel(name, options=["A", "B"])):
        with pytest.raises(CheckpointError, match="merge it into its base model"):
            make(str(folders / "adapter"))
