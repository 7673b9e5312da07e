"""Answers compared by likelihood through endpoints that do it as vLLM does, by echo, or not at all."""

import json
from dataclasses import replace

import pytest
import torch

from agent2.benchmarks import load_benchmark
from agent2.cli import main
from agent2.errors import ConfigError, EndpointFailed, Fault
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.llm.endpoints import Endpoint, EndpointClient
from agent2.llm.served import ServedSampler
from agent2.llm.served_likelihoods import LikelihoodForm, ServedLikelihoods
from agent2.llm.wire_problems import WireProblem
from agent2.models.hf import HfSampler
from agent2.models.loading import load_model, load_tokenizer
from agent2.records import AnswerOffer, Message, SamplingSettings, Split
from model_builders import DIGITS, make_model
from plugin_builders import write_rows
from served_fakes import Reply, chat, endpoint, error

CHOICES = """\
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
OFFER = AnswerOffer("1 + 1", [" 2", " 3 4", "5"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), steps=60)


class TinyServer:
    """What an inference server answers for a tiny model, with one token written after the prompt."""

    def __init__(self, folder, form, *, has_chats=True):
        self.model, self.tokenizer = load_model(folder, "float32", "cpu"), load_tokenizer(folder)
        self.form, self.has_chats = form, has_chats

    def __call__(self, body, number):
        if "messages" in body and ("prompt_logprobs" not in body or self.form is not LikelihoodForm.PROMPT_LOGPROBS):
            return chat("yes") if self.has_chats else error(400, "default chat template is no longer allowed")
        if "messages" in body:
            kept = {key: body[key] for key in ("add_generation_prompt", "continue_final_message") if key in body}
            text = self.tokenizer.apply_chat_template(body["messages"], tokenize=False, **kept)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self.tokenizer(body["prompt"])["input_ids"]
        with torch.inference_mode():
            logprobs_TV = torch.log_softmax(self.model(input_ids=torch.tensor([ids])).logits[0].float(), dim=-1)
        answer = {"text": "?", "finish_reason": "length"}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        if self.form is LikelihoodForm.PROMPT_LOGPROBS and "prompt_logprobs" in body:
            listed = [None, *(self._entries(logprobs_TV[t - 1], ids[t]) for t in range(1, len(ids)))]
            if "messages" in body:
                return reply({"choices": [{"message": {"content": "?"}}], "prompt_logprobs": listed, "usage": usage})
            return reply({"choices": [{**answer, "prompt_logprobs": listed}], "usage": usage})
        if self.form is LikelihoodForm.ECHO and body.get("echo"):
            ids = [*ids, int(logprobs_TV[-1].argmax())]
            places = range(1, len(ids))
            texts = [self.tokenizer.decode([token]) for token in ids]
            values = [None, *(float(logprobs_TV[t - 1, ids[t]]) for t in places)]
            tops = [None, *({"x": float(logprobs_TV[t - 1].max())} for t in places)]
            listed = {"tokens": texts, "token_logprobs": values, "top_logprobs": tops}
            return reply({"choices": [{**answer, "logprobs": listed}], "usage": usage})
        return reply({"choices": [answer], "usage": usage})

    def _entries(self, logprobs_V, token):
        ranked = [token, *(other for other in [int(logprobs_V.argmax())] if other != token)]
        return {
            str(other): {
                "logprob": float(logprobs_V[other]),
                "rank": 1 + int((logprobs_V > logprobs_V[other]).sum()),
                "decoded_token": self.tokenizer.decode([other]),
            }
            for other in ranked
        }


def reply(body):
    return Reply(json.dumps(body).encode())


def opened(url, **changes):
    return ServedSampler(Endpoint(url, "m", **{"first_wait_s": 0.0, "timeout_s": 120.0, **changes}))


def compared(sampler, offer, prompt=()):
    sampler.submit_answers(0, prompt or [Message("user", "unused")], offer)
    ((_, completion),) = sampler.collect()
    return completion


@pytest.mark.parametrize("form", list(LikelihoodForm))
def test_an_endpoint_gives_the_likelihoods_that_the_model_has_in_this_process(folder, form):
    local = HfSampler(folder)
    here = json.loads(compared(local, OFFER).text)
    local.close()
    with endpoint(TinyServer(folder, form)) as served:
        sampler = opened(served.url)
        there = json.loads(compared(sampler, OFFER).text)
        assert sampler.describe()["likelihood_form"] == form.value
        sampler.close()
    assert there["n_tokens"] == here["n_tokens"] and there["is_greedy"] == here["is_greedy"]
    assert there["logprobs"] == pytest.approx(here["logprobs"], abs=1e-4)


def test_a_chat_is_compared_in_the_servers_template_where_the_server_can(folder):
    prompt, offer = [Message("user", "1 + 1")], AnswerOffer(None, ["2", "7"])
    local = HfSampler(folder)
    here = json.loads(compared(local, offer, prompt).text)
    local.close()
    with endpoint(TinyServer(folder, LikelihoodForm.PROMPT_LOGPROBS)) as served:
        there = json.loads(compared(opened(served.url), offer, prompt).text)
    assert there["logprobs"] == pytest.approx(here["logprobs"], abs=1e-4) and there["n_tokens"] == here["n_tokens"]
    refusal = r"likelihoods of texts and not of chats.*leave out chat: true"
    with endpoint(TinyServer(folder, LikelihoodForm.ECHO)) as served, pytest.raises(ConfigError, match=refusal):
        compared(opened(served.url), offer, prompt)


def test_a_server_without_a_chat_template_is_opened_for_likelihoods_alone(folder):
    with endpoint(TinyServer(folder, LikelihoodForm.PROMPT_LOGPROBS, has_chats=False)) as served:
        sampler = opened(served.url)
        assert len(json.loads(compared(sampler, OFFER).text)["logprobs"]) == 3
        with pytest.raises(ConfigError, match="chat template is no longer allowed"):
            sampler.submit(1, [Message("user", "q")], SamplingSettings(max_tokens=4))
        sampler.close()


def ignores(body, number):
    """A server that knows neither field and says nothing about it."""
    return chat("yes") if "messages" in body else reply({"choices": [{"text": "!", "finish_reason": "length"}]})


def refuses(body, number):
    if "messages" in body:
        return chat("yes")
    if "echo" in body:
        return error(400, "Setting 'echo' and 'logprobs' at the same time is not supported for this model.")
    return error(400, "Unrecognized request argument supplied: prompt_logprobs")


def echoes_the_answer_alone(body, number):
    """A server that takes `logprobs` and leaves `echo` aside."""
    if "messages" in body:
        return chat("yes")
    listed = {"tokens": ["!"], "token_logprobs": [-0.5], "top_logprobs": [{"!": -0.5}]}
    return reply({"choices": [{"text": "!", "logprobs": listed}], "usage": {"completion_tokens": 1}})


def other_text(body, number):
    """A server that scores something else than it was asked."""
    if "messages" in body:
        return chat("yes")
    listed = [None, {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "Hello"}}]
    return reply({"choices": [{"text": "!", "prompt_logprobs": listed}]})


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (ignores, "prompt_logprobs: the answer has no prompt_logprobs; echo: the answer has no logprobs"),
        (refuses, "prompt_logprobs: .*Unrecognized request argument.*; echo: .*not supported for this model"),
        (echoes_the_answer_alone, "echo: the answer has log-probabilities of the written token alone"),
        (other_text, "the tokens spell 'Hello', not the text asked for"),
        (lambda body, number: chat("yes") if "messages" in body else error(404, "Not Found"), "HTTP 404"),
    ],
)
def test_a_server_that_has_neither_form_is_refused_with_the_reason_of_each(server, reason):
    with endpoint(server) as served, pytest.raises(ConfigError, match=reason) as refused:
        compared(opened(served.url), OFFER)
    assert "serve the model with vLLM or SGLang, or name its FOLDER" in str(refused.value)


def test_a_wrong_key_is_told_as_such_and_asks_nothing_else():
    refusal, server = r"HTTP 401.*AGENT2_API_KEY", lambda body, number: error(401, "invalid key")
    with endpoint(server) as served, pytest.raises(ConfigError, match=refusal):
        opened(served.url)
    assert {path.rpartition("/")[2] for path in served.paths} == {"completions"} and len(served.bodies) <= 4
    assert all("messages" in body for body in served.bodies)


def test_a_server_that_went_away_between_opening_and_comparing_is_gone(folder):
    with endpoint(TinyServer(folder, LikelihoodForm.ECHO)) as served:
        sampler = opened(served.url, max_tries=1)
    with pytest.raises(EndpointFailed, match="check that the server runs"):
        compared(sampler, OFFER)


def test_a_busy_server_is_asked_again_and_what_it_never_answers_is_missing(folder):
    tiny, busy = TinyServer(folder, LikelihoodForm.ECHO), error(429, "busy", retry_after="0")
    with endpoint(lambda body, number: busy if number % 2 else tiny(body, number)) as served:
        completion = compared(opened(served.url), OFFER)
        assert len(json.loads(completion.text)["logprobs"]) == 3
    state = {"comparing": False}
    with endpoint(lambda body, number: busy if state["comparing"] else tiny(body, number)) as served:
        client = EndpointClient(Endpoint(served.url, "m", max_tries=2, first_wait_s=0.0))
        likelihoods = ServedLikelihoods(client)
        state["comparing"] = True
        problem = likelihoods.compare([], OFFER)
    assert isinstance(problem, WireProblem) and problem.fault is Fault.INFRASTRUCTURE
    assert "after 2 tries" in problem.reason


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (AnswerOffer("1 + 1", [" 2", ""]), "the answer '' adds no token to its prompt"),
        (AnswerOffer("too long", [" 2"]), "does not fit the model's context"),
    ],
)
def test_what_a_model_cannot_compare_is_its_own_fault(folder, offer, why):
    tiny = TinyServer(folder, LikelihoodForm.PROMPT_LOGPROBS)

    def server(body, number):
        if "too long" in body.get("prompt", ""):
            return error(400, "This model's maximum context length is 4 tokens. However, you requested 9 tokens.")
        return tiny(body, number)

    with endpoint(server) as served:
        completion = compared(opened(served.url), offer)
    assert completion.fault is Fault.MODEL and why in completion.reason


def test_a_log_probability_that_is_no_number_is_no_score(folder):
    tiny = TinyServer(folder, LikelihoodForm.PROMPT_LOGPROBS)

    def server(body, number):
        answer = tiny(body, number)
        if body.get("prompt") == "1 + 15":
            return replace(answer, body=answer.body.replace(b'"logprob": -', b'"logprob": -1e999, "was": -'))
        return answer

    with endpoint(server) as served:
        completion = compared(opened(served.url), OFFER)
    assert completion.fault is Fault.MODEL and "not all usable numbers" in completion.reason


def test_a_benchmark_of_options_is_played_through_an_endpoint_as_in_this_process(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums").mkdir()
    rows = [
        {"prompt": prompt, "choices": [answer, "9" + answer, answer + "7"], "answer": answer}
        for prompt, answer in DIGITS
    ]
    write_rows(tmp_path / "sums/rows.jsonl", rows[:60])
    write_rows(tmp_path / "sums/train.jsonl", rows[60:])
    (tmp_path / "sums/benchmark.yaml").write_text(CHOICES)
    benchmark = load_benchmark("./sums")
    attempts = [Attempt(item, 0, 0) for item in benchmark.items(Split.TEST_PUBLIC, 12, b"s" * 32)]
    values = []
    server = TinyServer(folder, LikelihoodForm.ECHO, has_chats=False)
    with endpoint(server) as served:
        for sampler in (HfSampler(folder), opened(served.url)):
            played = play(
                attempts, sampler, benchmark.environment, benchmark.scorer(), PlaySettings(SamplingSettings(), 1)
            )
            values.append({record.rollout.item_id: record.score.value for record in played})
            sampler.close()
        assert values[0] == values[1] and len(values[0]) == 12
        monkeypatch.setattr("sys.argv", ["agent2", "eval", "./sums", "--checkpoint", f"{served.url}#m", "--limit", "5",
                                         "--role", "nightly", "--out", "run"])  # fmt: skip
        with pytest.raises(SystemExit) as exit_info:
            main()
    printed = capsys.readouterr()
    assert not exit_info.value.code and "sums" in printed.out, printed.err
