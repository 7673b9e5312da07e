"""GGUF files as checkpoints; the engine that plays them is a stand-in that reads them for real."""

import hashlib
import os

import pytest

from agent2.engines.catalogue import LLAMA_CPP
from agent2.errors import CheckpointError, ConfigError, SamplerFailed
from agent2.models.checkpoint import NO_CHAT_TEMPLATE, template_digest
from agent2.models.sources import PLAIN_DIGEST, LoadSettings, find_checkpoint
from agent2.records import Message, SamplingSettings
from engine_fakes import install_fake_engine, starts
from published_fakes import TEMPLATE, write_four_bits


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path):
    write_four_bits(tmp_path / "model.Q4_0.gguf")
    return tmp_path / "model.Q4_0.gguf"


@pytest.mark.slow
def test_a_file_is_played_as_it_is_and_the_protocol_has_the_precision_of_its_weights(file):
    engine = install_fake_engine(name=LLAMA_CPP)
    sources = [find_checkpoint(str(file)), find_checkpoint(f"llama-cpp:{file}")]
    sources.append(find_checkpoint(str(file), LoadSettings(engine=LLAMA_CPP, dtype="bfloat16")))
    for source in sources:
        assert (source.kind, source.name, source.folder) == ("engine", "model.Q4_0", None)
        assert source.digest == hashlib.sha256(file.read_bytes()).hexdigest()
        assert source.dtype == "Q4_0 by xllamacpp 0.0"
        assert source.chat_template_digest == template_digest(TEMPLATE)
        assert "Q4_0 89%, F32 11%" in source.caveats[0]
    sampler = sources[0].open()
    sampler.submit(0, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    ((_, completion),) = sampler.collect()
    assert (completion.text, sampler.describe()["dtype"]) == ("1 + 1!", "Q4_0")
    sampler.close()
    (start,) = starts(engine)
    flags = dict(zip(start["argv"], start["argv"][1:], strict=False))
    assert (flags["serve"], flags["--max-model-len"]) == (str(file), "64")


@pytest.mark.slow
def test_one_that_changes_while_it_is_played_is_not_played_on(file):
    install_fake_engine("dies in the middle", "well", name=LLAMA_CPP)
    sampler = find_checkpoint(str(file)).open()
    file.write_bytes(file.read_bytes() + b"more")
    for number in range(6):
        sampler.submit(number, [Message("user", f"q{number}")], SamplingSettings(max_tokens=4))
    with pytest.raises(SamplerFailed, match="its files changed"):
        for _ in range(6):
            sampler.collect()
    sampler.close()


@pytest.mark.slow
def test_a_file_that_is_exchanged_between_its_digest_and_its_play_is_not_played(file):
    engine = install_fake_engine("well", "well", name=LLAMA_CPP)
    source = find_checkpoint(str(file))
    status, other = file.stat(), file.with_name("other.gguf")
    other.write_bytes(file.read_bytes()[:-1] + b"!")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert other.stat().st_size == status.st_size
    other.replace(file)
    with pytest.raises(SamplerFailed, match="its files changed before the engine had loaded them"):
        source.open()
    assert len(starts(engine)) == 1
    find_checkpoint(str(file)).open().close()


@pytest.mark.slow
def test_a_file_that_is_written_to_while_it_is_played_gives_no_further_answer(file):
    install_fake_engine("well", name=LLAMA_CPP)
    sampler = find_checkpoint(str(file)).open()
    status, content = file.stat(), file.read_bytes()
    sampler.submit(0, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    assert len(sampler.collect()) == 1
    file.chmod(0o600)
    sampler.submit(1, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    assert len(sampler.collect()) == 1, "its mode is not what it plays"
    changed_ns = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == changed_ns:  # the clock of a file system has ticks of milliseconds
        file.write_bytes(content[:-1] + b"!")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    sampler.submit(2, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    with pytest.raises(SamplerFailed, match="its files changed"):
        sampler.collect()
    sampler.close()


def test_a_file_without_a_template_can_be_played_in_the_plain_format_alone(tmp_path):
    write_four_bits(tmp_path / "bare.gguf", template=None)
    install_fake_engine(name=LLAMA_CPP)
    assert find_checkpoint(str(tmp_path / "bare.gguf")).chat_template_digest == NO_CHAT_TEMPLATE
    plain = find_checkpoint(str(tmp_path / "bare.gguf"), LoadSettings(is_plain=True))
    assert plain.chat_template_digest == PLAIN_DIGEST and "in the plain format" in plain.caveats[-1]


def test_what_cannot_be_played_is_refused_with_what_to_do(file, tmp_path):
    with pytest.raises(ConfigError, match="engine llama-cpp is not installed; agent2 engines install llama-cpp"):
        find_checkpoint(str(file))
    with pytest.raises(ConfigError, match=r"engine vllm plays no GGUF file.*agent2 models convert"):
        find_checkpoint(f"vllm:{file}")
    with pytest.raises(ConfigError, match=r"no such folder; give .*a FILE\.gguf"):
        find_checkpoint(str(tmp_path / "nowhere.gguf"))
    install_fake_engine(name=LLAMA_CPP)
    (tmp_path / "text.gguf").write_text("GG, not GGUF")
    with pytest.raises(CheckpointError, match="is not a GGUF file"):
        find_checkpoint(str(tmp_path / "text.gguf"))
    (tmp_path / "torn.gguf").write_bytes(file.read_bytes()[:300])
    with pytest.raises(CheckpointError, match=r"torn\.gguf is no complete GGUF file"):
        find_checkpoint(str(tmp_path / "torn.gguf"))
