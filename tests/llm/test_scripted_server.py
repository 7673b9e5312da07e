"""Each protocol, streaming and not, asked as an agent's client library asks; and as a process."""

import gzip
import json
import subprocess
import sys

import httpx
import pytest
import zstandard
from fastapi.testclient import TestClient

from agent2.llm.scripted_replies import Script
from agent2.llm.scripted_server import make_app
from scripted_llm_builders import KEY, scripted_upstream

USAGE = {"input": 1000, "output": 50, "cached_input": 100, "reasoning": 10}
SCRIPT = Script.model_validate(
    {
        "model": "scripted-1",
        "steps": [
            {"say": "I look around.", "run": "ls -la", "usage": USAGE},
            {"say": "Done now.", "usage": {"input": 2000, "output": 7}},
        ],
    }
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
GEMINI = "/v1beta/models/scripted-1"


def chat(results=0, **more):
    messages = [{"role": "user", "content": "go"}]
    for number in range(results):
        messages.append({"role": "assistant", "content": "", "tool_calls": []})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": "output"})
    tools = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
    return {"model": "m", "messages": messages, "tools": tools, **more}


def responses(results=0, **more):
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    items += [{"type": "function_call_output", "call_id": "c", "output": "output"}] * results
    tools = [{"type": "function", "name": "shell_command", "parameters": SCHEMA}]
    return {"model": "m", "input": items, "tools": tools, **more}


def anthropic(results=0, **more):
    messages = [{"role": "user", "content": "go"}]
    messages += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}] * results
    return {"model": "m", "messages": messages, "tools": [{"name": "Bash", "input_schema": SCHEMA}], **more}


def gemini(results=0):
    contents = [{"role": "user", "parts": [{"text": "go"}]}]
    part = {"functionResponse": {"name": "run_shell_command", "response": {"output": "x"}}}
    contents += [{"role": "user", "parts": [part]}] * results
    tools = [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": SCHEMA}]}]
    return {"contents": contents, "tools": tools}


@pytest.fixture
def client(tmp_path):
    with TestClient(make_app(SCRIPT, tmp_path / "log.jsonl")) as test_client:
        yield test_client


def events(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_chat_answers_at_once(client):
    answer = client.post("/v1/chat/completions", json=chat()).json()
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls -la"}
    assert answer["usage"] == {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "total_tokens": 1050,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 10},
    }
    assert client.post("/v1/chat/completions", json=chat(1)).json()["choices"][0]["finish_reason"] == "stop"


def test_chat_streams_the_same_and_tells_usage_only_when_asked(client):
    body = chat(stream=True, stream_options={"include_usage": True})
    response = client.post("/v1/chat/completions", json=body)
    assert response.text.endswith("data: [DONE]\n\n")
    chunks = events(response)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "I look around."
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert json.loads("".join(call["arguments"] for call in calls)) == {"command": "ls -la"}
    assert chunks[-1]["usage"]["prompt_tokens"] == 1000
    silent = events(client.post("/v1/chat/completions", json=chat(stream=True)))
    assert all("usage" not in chunk for chunk in silent)


def test_responses_answer_at_once_and_stream_the_same(client):
    answer = client.post("/v1/responses", json=responses()).json()
    assert [item["type"] for item in answer["output"]] == ["message", "function_call"]
    assert json.loads(answer["output"][1]["arguments"]) == {"command": "ls -la"}
    assert answer["usage"]["input_tokens_details"] == {"cached_tokens": 100}
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 10}
    streamed = events(client.post("/v1/responses", json=responses(stream=True)))
    assert streamed[0]["type"] == "response.created"
    assert streamed[-1] == {
        "type": "response.completed",
        "response": answer,
        "sequence_number": len(streamed) - 1,
    }
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    pieces = [event["delta"] for event in streamed if event["type"] == "response.output_text.delta"]
    assert "".join(pieces) == "I look around."


def test_anthropic_leaves_cached_tokens_out_of_input_and_streams_the_same(client):
    answer = client.post("/v1/messages", json=anthropic()).json()
    assert (answer["stop_reason"], answer["content"][1]["input"]) == ("tool_use", {"command": "ls -la"})
    usage = answer["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (900, 100, 50)
    streamed = events(client.post("/v1/messages", json=anthropic(stream=True)))
    parts = [event["delta"].get("partial_json", "") for event in streamed if event["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == {"command": "ls -la"}
    assert streamed[0]["message"]["usage"]["input_tokens"] == 900
    assert streamed[-2]["usage"] == {"output_tokens": 50}
    assert client.post("/v1/messages", json=anthropic(1)).json()["stop_reason"] == "end_turn"


def test_gemini_leaves_thoughts_out_of_candidates_and_streams_the_same(client):
    answer = client.post(f"{GEMINI}:generateContent", json=gemini()).json()
    parts = answer["candidates"][0]["content"]["parts"]
    assert parts[1]["functionCall"]["args"] == {"command": "ls -la"}
    assert answer["usageMetadata"] == {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 100,
        "candidatesTokenCount": 40,
        "thoughtsTokenCount": 10,
        "totalTokenCount": 1050,
    }
    chunks = events(client.post(f"{GEMINI}:streamGenerateContent?alt=sse", json=gemini()))
    assert chunks[-1]["usageMetadata"] == answer["usageMetadata"]
    texts = [part.get("text", "") for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(texts) == "I look around."
    assert client.post(f"{GEMINI}:generateContent", json=gemini(1)).json()["candidates"][0]["finishReason"] == "STOP"


def test_gemini_fills_in_a_schema_that_it_is_asked_for(client):
    schema = {"properties": {"why": {"type": "string"}, "sure": {"type": "boolean"}}}
    body = {"contents": [], "generationConfig": {"responseJsonSchema": schema}}
    answer = client.post(f"{GEMINI}:generateContent", json=body).json()
    assert json.loads(answer["candidates"][0]["content"]["parts"][0]["text"]) == {"why": "ok", "sure": True}


def test_tokens_are_counted_and_models_listed_without_a_step(client, tmp_path):
    assert client.post("/v1/messages/count_tokens", json=anthropic()).json() == {"input_tokens": 123}
    assert client.post(f"{GEMINI}:countTokens", json=gemini()).json() == {"totalTokens": 123}
    assert client.get("/v1/models").json()["data"][0]["id"] == "scripted-1"
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("zstd", lambda data: zstandard.ZstdCompressor().compress(data))]
)
def test_a_packed_body_is_read(client, encoding, pack):
    body = pack(json.dumps(responses()).encode())
    answer = client.post("/v1/responses", content=body, headers={"content-encoding": encoding})
    assert answer.json()["output"][1]["type"] == "function_call"


def test_each_request_leaves_a_line_with_its_step_and_no_text(client, tmp_path):
    client.post("/v1/chat/completions", json=chat())
    client.post("/v1/messages", json=anthropic(1))
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["protocol"], row["step"], row["usage"]["input"]) for row in rows] == [
        ("openai-chat", 0, 1000),
        ("anthropic", 1, 2000),
    ]
    assert "look around" not in (tmp_path / "log.jsonl").read_text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer right"}, 200),
        ({"x-api-key": "right"}, 200),
        ({"x-goog-api-key": "right"}, 200),
        ({"authorization": "Bearer wrong"}, 401),
        ({}, 401),
    ],
)
def test_with_a_key_only_requests_that_carry_it_are_answered(headers, status):
    with TestClient(make_app(SCRIPT, key="right")) as client:
        assert client.post("/v1/chat/completions", json=chat(), headers=headers).status_code == status


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff"])
def test_a_body_that_is_no_object_is_refused(client, body):
    answer = client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert "not a JSON object" in answer.json()["error"]["message"]


def test_an_unknown_path_is_refused(client):
    assert client.post("/v1/embeddings", json={}).status_code == 404
    assert client.get("/v2/nothing").status_code == 404


@pytest.mark.slow
def test_it_serves_a_packaged_script_on_a_free_port_and_insists_on_the_key(tmp_path):
    body = {"model": "m", "messages": [{"role": "user", "content": "a title, please"}]}
    with scripted_upstream(tmp_path, "arithmetic") as upstream:
        url = f"{upstream.url}/v1/chat/completions"
        assert httpx.post(url, json=body, timeout=120).status_code == 401
        answer = httpx.post(url, json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=120).json()
        assert answer["usage"]["prompt_tokens"] == 9
        assert [row["status"] for row in upstream.served()] == [401, 200]
        assert KEY not in upstream.log.read_text()


@pytest.mark.slow
def test_a_bad_script_ends_it_with_one_sentence(tmp_path):
    script = tmp_path / "script.yaml"
    script.write_text("steps: []\n")
    command = [sys.executable, "-m", "agent2.llm.scripted_server", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "script.yaml:1: steps:" in done.stderr
    assert "Traceback" not in done.stderr
