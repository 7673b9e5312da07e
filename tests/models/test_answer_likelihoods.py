"""Likelihoods of answers against one pass over the whole text, and benchmarks that are answered so."""

import json
import math
import sys

import pytest
import torch

from agent2.benchmarks import load_benchmark
from agent2.cli import main
from agent2.engines.catalogue import LLAMA_CPP
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.answer_likelihoods import answer_likelihoods
from agent2.models.hf import HfSampler
from agent2.models.loading import load_model, load_tokenizer
from agent2.models.sources import ScriptedSampler
from agent2.records import SamplingSettings, Split
from engine_fakes import install_fake_engine
from model_builders import DIGITS, make_model
from plugin_builders import write_rows

TEXTS = """\
name: sums
version: "1"
files: {test_public: rows.jsonl, train: train.jsonl}
prompt: "{prompt}"
options: choices
shuffle: true
answer: answer
few_shot: 1
environment: {name: likelihood, by: tokens}
scorer: likelihood
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), steps=60)


@pytest.fixture
def benchmark_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "sums"
    own.mkdir()
    rows = [
        {"prompt": prompt, "choices": [answer, "9" + answer, answer + "7"], "answer": answer}
        for prompt, answer in dict(DIGITS).items()
    ]
    write_rows(own / "rows.jsonl", rows[:60])
    write_rows(own / "train.jsonl", rows[60:])
    (own / "benchmark.yaml").write_text(TEXTS)
    return own


def whole_pass(model, tokenizer, text, answer):
    """Sum of log-probabilities of the answer's tokens by one pass over the whole text."""
    before, tokens = tokenizer(text)["input_ids"], tokenizer(text + answer)["input_ids"]
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0].float(), dim=-1)
    places = range(len(before), len(tokens))
    return sum(float(logprobs[t - 1, tokens[t]]) for t in places), [
        int(logprobs[t - 1].argmax()) == tokens[t] for t in places
    ]


def test_each_answer_has_the_likelihood_of_one_pass_over_the_whole_text(folder):
    model, tokenizer = load_model(folder, "float32", "cpu"), load_tokenizer(folder)
    text, _ = DIGITS[0]
    answers = ["1", "12", "345", "1"]
    likelihoods, n_computed = answer_likelihoods(model, tokenizer, 64, text, answers, with_special_tokens=True)
    for answer, likelihood in zip(answers, likelihoods, strict=True):
        logprob, greedy = whole_pass(model, tokenizer, text, answer)
        assert likelihood.logprob == pytest.approx(logprob, abs=1e-4)
        assert likelihood.n_tokens == len(greedy) and likelihood.is_greedy == all(greedy)
    assert n_computed < 4 * len(tokenizer(text + "345")["input_ids"])


def test_a_benchmark_of_options_is_played_and_each_way_of_normalising_is_a_view(folder, benchmark_folder):
    benchmark = load_benchmark(str(benchmark_folder))
    items = benchmark.items(Split.TEST_PUBLIC, 60, b"s" * 32)
    sampler = HfSampler(folder)
    attempts, settings = [Attempt(item, 0, 0) for item in items], PlaySettings(SamplingSettings(), 1)
    scored = list(play(attempts, sampler, benchmark.environment, benchmark.scorer(), settings))
    assert len(scored) == 60 and all(record.rollout.fault is None for record in scored)
    for record in scored:
        state = record.rollout.state
        assert record.score.value == record.score.views["right_by_tokens"]
        assert len(state["logprobs"]) == 3 and all(logprob < 0 for logprob in state["logprobs"])
        assert json.loads(record.rollout.turns[0].action)["logprobs"] == state["logprobs"]
    sampler.close()


def test_a_completion_is_right_where_each_token_is_the_likeliest(folder, benchmark_folder):
    text = (
        TEXTS.replace("options: choices\nshuffle: true\n", "").replace(", by: tokens", "").replace("few_shot: 1\n", "")
    )
    (benchmark_folder / "benchmark.yaml").write_text(text)
    benchmark = load_benchmark(str(benchmark_folder))
    (item,) = benchmark.items(Split.TRAIN, 1, None)
    settings, sampler = PlaySettings(SamplingSettings(), 1), HfSampler(folder)
    (record,) = play([Attempt(item, 0, 0)], sampler, benchmark.environment, benchmark.scorer(), settings)
    sampler.close()
    model, tokenizer = load_model(folder, "float32", "cpu"), load_tokenizer(folder)
    blank = "" if item.prompt[-1].isspace() else " "
    logprob, greedy = whole_pass(model, tokenizer, item.prompt, blank + item.reference)
    assert record.score.value == float(all(greedy))
    assert record.score.views["logprob"] == pytest.approx(logprob, abs=1e-4)
    bits = -logprob / math.log(2) / len(item.reference)
    assert record.score.views["bits_per_byte"] == pytest.approx(bits, abs=1e-4)


def test_a_text_beyond_the_context_is_the_models_fault_and_no_wrong_answer_of_the_data(folder, benchmark_folder):
    benchmark = load_benchmark(str(benchmark_folder))
    (item,) = benchmark.items(Split.TEST_PUBLIC, 1, b"s" * 32)
    sampler = HfSampler(folder, context_length=4)
    settings = PlaySettings(SamplingSettings(), 1)
    (record,) = play([Attempt(item, 0, 0)], sampler, benchmark.environment, benchmark.scorer(), settings)
    sampler.close()
    assert "does not fit the model's context of 4" in record.rollout.reason


def test_a_checkpoint_that_has_no_likelihoods_is_refused(benchmark_folder):
    benchmark = load_benchmark(str(benchmark_folder))
    (item,) = benchmark.items(Split.TEST_PUBLIC, 1, b"s" * 32)
    settings, sampler = PlaySettings(SamplingSettings(), 1), ScriptedSampler(lambda chat: "A")
    with pytest.raises(ConfigError, match="compared by likelihood, which this checkpoint cannot give"):
        list(play([Attempt(item, 0, 0)], sampler, benchmark.environment, benchmark.scorer(), settings))


def test_a_base_model_without_a_chat_template_is_evaluated_as_it_is(folder, benchmark_folder, monkeypatch, capsys):
    base = benchmark_folder.parent / "base"
    base.mkdir()
    for file in folder.iterdir():
        if "chat_template" in file.name:
            continue
        content = file.read_bytes()
        if file.name == "tokenizer_config.json":
            config = json.loads(content)
            config.pop("chat_template", None)
            content = json.dumps(config).encode()
        (base / file.name).write_bytes(content)

    def agent2(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        return exit_info.value.code or 0, capsys.readouterr()

    code, printed = agent2("benchmarks", "check", "./sums")
    assert code == 0, printed.out
    sides = ("--checkpoint", str(base), "--baseline", str(base), "--out", "run")
    code, printed = agent2("eval", "./sums", "--role", "nightly", *sides)
    assert code == 0 and "sums_accuracy" in printed.out, printed.err
    (benchmark_folder.parent / "player.py").write_text("def play(chat):\n    return 'A'\n")
    player = "scripted:player.py:play"
    code, printed = agent2("eval", "./sums", "--role", "nightly", "--checkpoint", player, "--baseline", player)
    assert code == 2 and "sums compares answers by likelihood, which scripted:player.py:play cannot give" in printed.err
    install_fake_engine(name=LLAMA_CPP)
    served = f"{LLAMA_CPP}:{folder}"
    code, printed = agent2("eval", "./sums", "--role", "nightly", "--checkpoint", served, "--baseline", served)
    assert code == 2 and "by engine llama-cpp cannot give; name a model's FOLDER, without an engine" in printed.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("scorer: likelihood", "scorer: choice", "need both: environment: likelihood and scorer: likelihood"),
        ("environment: {name: likelihood, by: tokens}\n", "", "need both: environment: likelihood"),
        ("by: tokens", "by: token", "unknown by 'token'; did you mean 'tokens'?"),
        ("by: tokens", "letters: true", "whether letters are compared follows from {options}"),
    ],
)
def test_half_a_declaration_is_refused(benchmark_folder, old, new, message):
    (benchmark_folder / "benchmark.yaml").write_text(TEXTS.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        load_benchmark(str(benchmark_folder))
    assert message in str(refused.value)
