"""What the server of llama.cpp adds to it: conversion, prompts, the key. llama.cpp itself is in another environment."""

import json
import os
import struct
import threading
from http.server import ThreadingHTTPServer

import httpx
import numpy as np
import pytest

from agent2.engines.catalogue import ENGINES, LLAMA_CPP, ServedModel
from agent2.engines.llama_cpp_server import (
    Renderer,
    answer,
    answer_by_file,
    convert,
    describe,
    end_tokens_of,
    make_handler,
    permute,
    read_tensors,
)
from grading_builders import VOCAB, llama_tensors, write_checkpoint
from published_fakes import TEMPLATE, write_four_bits, write_gguf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("models") / "model")


class Scripted:
    """In llama.cpp's place: the same tokens for each request."""

    def __init__(self, *tokens: int, n_said: int | None = None) -> None:
        self.requests: list[dict] = []
        self.tokens, self.n_said = tokens, len(tokens) if n_said is None else n_said

    def handle_chat_completions(self, body):
        self.requests.append(body)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}
        usage = {"prompt_tokens": 7, "completion_tokens": self.n_said}
        return {"object": "chat.completion", "model": "x", "choices": [choice], "usage": usage}

    def handle_completions(self, body):
        self.requests.append(body)
        content = [{"id": token, "logprob": -0.5, "top_logprobs": []} for token in self.tokens]
        text = "".join(f"t{token}" for token in self.tokens)
        choice = {"text": text, "logprobs": {"content": content} if body["n_probs"] else None}
        return {"choices": [choice], "usage": {"completion_tokens": self.n_said}}


def ask(model, folder, limit=64, **fields):
    body = {"messages": [{"role": "user", "content": "4+2"}], "max_tokens": 5, "seed": 3, **fields}
    return answer(model, Renderer(folder, None), body, limit, [1])


def number(text: str) -> int:
    return VOCAB.index(text)


def test_tokens_become_text_and_the_end_token_is_said_and_not_shown(folder):
    six, one = number("6"), number("1")
    status, body = ask(Scripted(six, one, 1), folder, temperature=0, logprobs=True)
    assert status == 200
    assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("6 1", "stop")
    assert [entry["token"] for entry in body["choices"][0]["logprobs"]["content"]] == ["6", "1", "<eos>"]
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 3}
    _, cut = ask(Scripted(six, one), folder)
    assert (cut["choices"][0]["finish_reason"], "logprobs" in cut["choices"][0]) == ("length", False)


def test_a_prompt_is_token_ids_and_sampling_is_the_protocols_alone(folder):
    model = Scripted(1)
    ask(model, folder, temperature=0.7, top_p=0.9)
    (sent,) = model.requests
    assert sent["prompt"] == [number("<user>"), number("4"), number("+"), number("2"), number("<bot>")]
    assert (sent["temperature"], sent["top_p"], sent["seed"], sent["n_predict"]) == (0.7, 0.9, 3, 5)
    assert (sent["top_k"], sent["min_p"], sent["repeat_penalty"]) == (0, 0.0, 1.0)
    assert sent["samplers"] == ["temperature", "top_p"]


def test_a_prompt_that_leaves_no_room_and_lost_tokens_are_errors_and_no_answers(folder):
    status, body = ask(Scripted(1), folder, limit=9)
    assert (status, "maximum context length is 9 tokens" in body["error"]["message"]) == (400, True)
    assert ask(Scripted(1, n_said=2), folder)[0] == 500


def test_a_gguf_file_answers_in_its_own_tokens_and_sampling_is_the_protocols_alone():
    model = Scripted(4, 2)
    body = {"model": "m", "messages": [{"role": "user", "content": "6 * 7"}], "max_tokens": 5, "temperature": 0.7}
    status, answered = answer_by_file(model, {**body, "top_p": 0.9, "seed": 3, "logprobs": None}, 64)
    assert (status, answered["choices"][0]["message"]["content"]) == (200, "42")
    (sent,) = model.requests
    assert (sent["temperature"], sent["top_p"], sent["seed"], sent["max_tokens"]) == (0.7, 0.9, 3, 5)
    assert (sent["top_k"], sent["min_p"], sent["repeat_penalty"]) == (0, 0.0, 1.0)
    assert not sent.keys() & {"model", "logprobs"}


class Refusing:
    """In llama.cpp's place: an error."""

    def __init__(self, **error: object) -> None:
        self.error = error

    def handle_chat_completions(self, body):
        return {"error": self.error}


def test_a_prompt_that_leaves_no_room_is_the_same_error_for_a_gguf_file():
    body = {"messages": [], "max_tokens": 5}
    for model in (Scripted(4), Refusing(type="exceed_context_size_error", n_prompt_tokens=70)):
        status, answered = answer_by_file(model, body, 11)
        assert (status, "maximum context length is 11 tokens" in answered["error"]["message"]) == (400, True)
    assert answer_by_file(Refusing(type="server_error", message="out of memory"), body, 64)[0] == 500


def test_a_gguf_file_is_described_by_its_weights_and_not_by_its_claim(tmp_path):
    write_four_bits(tmp_path / "four.gguf")
    told = describe(tmp_path / "four.gguf")
    assert told["weights"] == {"Q4_0": 256, "F32": 32}
    assert (told["architecture"], told["chat_template"], told["context_length"]) == ("llama", TEMPLATE, 64)
    write_gguf(tmp_path / "silent.gguf", template=None)
    told = describe(tmp_path / "silent.gguf")
    assert (list(told["weights"]), told["chat_template"]) == (["F32"], None)


def test_a_torn_gguf_file_and_one_of_several_parts_are_refused(tmp_path):
    write_four_bits(tmp_path / "four.gguf")
    (tmp_path / "torn.gguf").write_bytes((tmp_path / "four.gguf").read_bytes()[:300])
    with pytest.raises(SystemExit, match=r"torn\.gguf is no complete GGUF file"):
        describe(tmp_path / "torn.gguf")
    write_four_bits(tmp_path / "part.gguf", parts=3)
    with pytest.raises(SystemExit, match=r"part\.gguf is one of 3 parts"):
        describe(tmp_path / "part.gguf")


def test_another_template_replaces_the_models_own(folder):
    own, other = Renderer(folder, None), Renderer(folder, "{{ messages[0]['content'] }}")
    chat = [{"role": "user", "content": "42"}]
    assert len(own.encode(chat)) == len(other.encode(chat)) + 2


MARKED = """{% for m in messages %}{% if m['role'] == 'assistant' %}
    {% set end = '2' %}{% generation %}{% set end = '1' %}{{ m['content'] }}{% endgeneration %}{{ end }}

{% else %}<user>{{ m['content'] }}{% endif %}{% endfor %}<bot>"""


@pytest.mark.slow
@pytest.mark.parametrize("template", [None, MARKED])
def test_prompts_are_those_that_transformers_makes(folder, template):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "4 + 2"}, {"role": "assistant", "content": "= 6"}]
    chat.append({"role": "user", "content": "= 6"})
    expected = tokenizer.apply_chat_template(
        chat, chat_template=template, add_generation_prompt=True, return_dict=False
    )
    assert Renderer(folder, template).encode(chat) == expected


def test_tensors_are_read_in_each_precision(folder, tmp_path):
    assert {name: values.tolist() for name, values in read_tensors(folder)} == {
        name: values.tolist() for name, values in llama_tensors().items()
    }
    halves = np.array([1.0, -2.5, 0.0], np.float32)
    bits = (halves.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bits)
    ((name, values),) = read_tensors(tmp_path)
    assert (name, values.tolist()) == ("w", [1.0, -2.5, 0.0])


def test_whole_numbers_in_weights_are_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0")
    with pytest.raises(SystemExit, match="tensor w is I8; llama-cpp reads F32, F16, BF16"):
        list(read_tensors(tmp_path))


def test_rows_that_rotate_together_stand_side_by_side():
    rows = np.arange(8)[:, None]  # 2 heads of 4: transformers rotates row k with row k + 2
    assert permute(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "qwen2"}, "this is qwen2"),
        ({"attention_bias": True}, "without biases"),
        ({"rope_parameters": {"rope_type": "llama3"}}, r"positions llama3\); play it with vllm"),
    ],
)
def test_models_that_are_not_converted_are_refused_with_what_to_do(tmp_path, change, words):
    folder = write_checkpoint(tmp_path / "model", **change)
    with pytest.raises(SystemExit, match=words):
        convert(folder, tmp_path / "model.gguf", "float32", [1])
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize("ends", [[], [1, 2, 3, 4]])
def test_end_tokens_that_llama_cpp_cannot_hold_are_refused(folder, tmp_path, ends):
    with pytest.raises(SystemExit, match=f"has {len(ends)} end tokens"):
        convert(folder, tmp_path / "model.gguf", "float32", ends)


def test_end_tokens_are_those_of_generation_config_before_config(tmp_path):
    folder = write_checkpoint(tmp_path / "model")
    assert end_tokens_of(folder) == [1]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 1]}))
    assert end_tokens_of(folder) == [2, 1]


def test_who_does_not_know_the_key_gets_nothing():
    def respond(body):
        if body == {"broken": True}:
            raise ValueError("one request")
        return 200, {"choices": []}

    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler("agent2-model", "key", respond))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    known = {"authorization": "Bearer key", "x-request-id": "r7"}
    try:
        with httpx.Client(trust_env=False, timeout=120) as client:
            assert client.get(f"{url}/models").status_code == 401
            wrong = {"authorization": "Bearer k"}
            assert client.post(f"{url}/chat/completions", json={}, headers=wrong).status_code == 401
            assert client.get(f"{url}/models", headers=known).json() == {"data": [{"id": "agent2-model"}]}
            assert client.post(f"{url}/other", json={}, headers=known).status_code == 404
            assert client.post(f"{url}/chat/completions", json={"broken": True}, headers=known).status_code == 500
            answered = client.post(f"{url}/chat/completions", json={"messages": []}, headers=known).json()
            assert (answered["id"], answered["model"]) == ("chatcmpl-r7", "agent2-model")
    finally:
        server.shutdown()
        server.server_close()


def test_flags_follow_from_the_protocol(tmp_path):
    served = ServedModel(tmp_path, "name", 8123, "key", "float32", 512, 4, chat_template=tmp_path / "t.jinja")
    arguments = ENGINES[LLAMA_CPP].arguments(served)
    assert arguments[0] == "-P" and os.path.exists(arguments[1])
    assert arguments[2:] == [
        *("serve", str(tmp_path), "--port", "8123", "--served-model-name", "name", "--dtype", "float32"),
        *("--parallel", "4", "--max-model-len", "512", "--chat-template", str(tmp_path / "t.jinja")),
    ]
    assert "key" not in arguments
