"""The gateway's process, with a provider on loopback: what is passed on, changed, counted and refused."""

import asyncio
import gzip
import json
import math
import random
import threading
import time

import httpx
import pytest
from aiohttp import web

from agent2.llm.gateway.recording import ExchangeOutcome, read_body, read_exchanges, totals
from agent2.llm.records import TokenCounts, WireProtocol
from gateway_fakes import DUMMY, KEY, PATHS, agent, gateway_settings, request_of, running, saying, sse, streaming
from socket_paths import short_path

pytestmark = pytest.mark.slow

PLAIN = TokenCounts(input=1000, output=50, cached_input=100, reasoning=10)
EXPECTED = {
    WireProtocol.OPENAI_CHAT: PLAIN,
    WireProtocol.OPENAI_RESPONSES: PLAIN,
    WireProtocol.ANTHROPIC: TokenCounts(input=1000, output=50, cached_input=100, cache_write=150, cache_write_1h=50),
    WireProtocol.GEMINI: PLAIN,
}


def test_every_protocol_is_passed_on_and_counted_streaming_and_not(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        for protocol in WireProtocol:
            for stream in (False, True):
                path, body = request_of(protocol, stream=stream)
                answer = client.post(path, json=body)
                assert answer.status_code == 200, answer.text
                assert "hello" in answer.text
    exchanges = read_exchanges(tmp_path / "llm")
    assert [(e.protocol, e.stream) for e in exchanges] == [(p, s) for p in WireProtocol for s in (False, True)]
    for exchange in exchanges:
        assert exchange.outcome is ExchangeOutcome.OK, exchange
        assert exchange.tokens == EXPECTED[exchange.protocol]
    total = totals(exchanges)
    plain_dollars = (900 * 1.0 + 100 * 0.1 + 50 * 10) / 1e6
    anthropic = (700 * 1.0 + 100 * 0.1 + 150 * 1.25 + 50 * 2.0 + 50 * 10) / 1e6
    assert total.dollars == pytest.approx(6 * plain_dollars + 2 * anthropic)
    assert (total.calls, total.n_unknown_cost, total.n_uncounted) == (8, 0, 0)


def test_the_provider_gets_the_pinned_model_and_the_real_key_and_no_other_header_of_the_agent(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    extra = {"x-secret-of-agent": "1", "anthropic-beta": "b1", "cookie": "c=1", "openai-organization": "other"}
    with running(settings) as (_, client):
        for protocol in WireProtocol:
            path, body = request_of(protocol)
            assert client.post(path, json=body, headers=extra, params={"key": DUMMY}).status_code == 200
    where = dict(zip(WireProtocol, provider.requests, strict=True))
    for protocol, request in where.items():
        headers = {name.lower(): value for name, value in request["headers"].items()}
        assert DUMMY not in json.dumps(request["query"]) + json.dumps(headers)
        assert headers["anthropic-beta"] == "b1"
        assert not {"x-secret-of-agent", "cookie", "openai-organization"} & set(headers)
        if protocol is WireProtocol.GEMINI:
            assert request["path"] == "/v1beta/models/priced:generateContent"
            assert headers["x-goog-api-key"] == KEY
        elif protocol is WireProtocol.ANTHROPIC:
            assert headers["x-api-key"] == KEY
        else:
            assert headers["authorization"] == f"Bearer {KEY}"
        if protocol is not WireProtocol.GEMINI:
            assert json.loads(request["body"])["model"] == "priced"
    asked_models = [exchange.asked_model for exchange in read_exchanges(tmp_path / "llm")]
    assert asked_models == ["small-helper", "small-helper", "small-helper", "gemini-small"]


def test_usage_is_asked_for_in_chat_streams_and_shown_only_to_who_asked(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.OPENAI_CHAT, stream=True)
        silent = client.post(path, json=body).text
        requested = client.post(path, json={**body, "stream_options": {"include_usage": True, "other": 1}}).text
    assert [json.loads(request["body"])["stream_options"] for request in provider.requests] == [
        {"include_usage": True},
        {"include_usage": True, "other": 1},
    ]
    assert "prompt_tokens" not in silent
    assert "hello" in silent and silent.endswith("data: [DONE]\n\n")
    assert "prompt_tokens" in requested
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.tokens for exchange in exchanges] == [PLAIN, PLAIN]
    assert read_body(exchanges[0].response).decode() == silent
    assert json.loads(read_body(exchanges[0].request)) == body


def test_a_stream_arrives_piece_by_piece(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    piece = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
    arrived = threading.Event()

    async def waits_for_the_client(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(piece)
        assert await asyncio.to_thread(arrived.wait, 120), "the first piece did not arrive before the rest was sent"
        await response.write(b"data: [DONE]\n\n")
        return response

    provider.then(waits_for_the_client)
    path, body = request_of(WireProtocol.OPENAI_CHAT, stream=True)
    with running(settings) as (_, client), client.stream("POST", path, json=body) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == piece
        arrived.set()
        assert b"".join(pieces) == b"data: [DONE]\n\n"


def test_counting_tokens_is_passed_on_and_free_and_models_are_told_here(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_tokens=0)
    with running(settings) as (_, client):
        _, body = request_of(WireProtocol.ANTHROPIC)
        counted = client.post("/v1/messages/count_tokens", json=body)
        gemini = client.post("/v1beta/models/g:countTokens", json={"contents": []})
        assert counted.json() == {"input_tokens": 123}
        assert gemini.json() == {"totalTokens": 123}
        n_sent = len(provider.requests)
        assert client.get("/v1/models").json()["data"][0]["id"] == "priced"
        assert client.get("/v1/models/priced").json()["id"] == "priced"
        assert client.get("/v1/models", headers={"anthropic-version": "1"}).json()["data"][0]["type"] == "model"
        assert client.get("/v1beta/models").json()["models"][0]["name"] == "models/priced"
        assert len(provider.requests) == n_sent == 2
    total = totals(read_exchanges(tmp_path / "llm"))
    assert (total.calls, total.tokens, total.dollars) == (2, TokenCounts(), 0.0)


def test_a_spent_budget_is_an_error_that_nobody_tries_again(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_tokens=50_000, unlisted_output_tokens=100)
    statuses = {}
    with running(settings) as (_, client):
        for protocol in WireProtocol:
            path, body = request_of(protocol)
            assert client.post(path, json=body).status_code == 200
            refused = client.post(path, json={**body, "pad": "x" * 120_000})
            statuses[protocol] = refused.status_code
            used = 1050 * len(statuses)
            assert f"budget of 50000 tokens is spent: {used} are used" in refused.json()["error"]["message"]
    assert statuses == {
        WireProtocol.OPENAI_CHAT: 403,
        WireProtocol.OPENAI_RESPONSES: 400,
        WireProtocol.ANTHROPIC: 402,
        WireProtocol.GEMINI: 400,
    }
    assert len(provider.requests) == 4
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.outcome for exchange in exchanges] == [ExchangeOutcome.OK, ExchangeOutcome.REFUSED] * 4
    assert (totals(exchanges).calls, totals(exchanges).n_refused) == (4, 4)


def test_a_budget_of_dollars_is_kept(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_dollars=0.01)
    path, body = request_of(WireProtocol.ANTHROPIC, max_tokens=500)
    with running(settings) as (_, client):
        statuses = [client.post(path, json=body).status_code for _ in range(6)]
    dollars = (700 * 1.0 + 100 * 0.1 + 150 * 1.25 + 50 * 2.0 + 50 * 10) / 1e6
    n_made = statuses.count(200)
    assert statuses == [200] * n_made + [402] * (6 - n_made)
    assert n_made * dollars <= 0.01
    assert n_made * dollars + 500 * 10 / 1e6 > 0.01 - dollars


def test_after_the_deadline_no_call_is_made(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, deadline=time.time() - 1)
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.ANTHROPIC)
        answer = client.post(path, json=body)
    assert answer.status_code == 402
    assert "time is over" in answer.json()["error"]["message"]
    assert provider.requests == []


def test_calls_at_the_same_time_cannot_take_the_same_tokens(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_tokens=8_000)
    chunk = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 900}}
    provider.then(*[streaming(sse(chunk), b"data: [DONE]\n\n", wait_s=0.2)] * 40)
    _, body = request_of(WireProtocol.OPENAI_CHAT, stream=True, max_tokens=900)

    async def all_at_once() -> list[int]:
        transport = httpx.AsyncHTTPTransport(uds=short_path(settings.socket), limits=httpx.Limits(max_connections=None))
        headers = {"authorization": f"Bearer {DUMMY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://g", headers=headers, timeout=120) as client:
            answers = await asyncio.gather(
                *(client.post(PATHS[WireProtocol.OPENAI_CHAT], json=body) for _ in range(40))
            )
        return [answer.status_code for answer in answers]

    with running(settings):
        statuses = asyncio.run(all_at_once())
    # Each call may need 900 output tokens and half its bytes, and is charged 1,000.
    assert math.ceil(len(json.dumps(body, separators=(",", ":"))) / 2) < 100
    assert statuses.count(200) in {7, 8}
    assert set(statuses) == {200, 403}
    assert len(provider.requests) == statuses.count(200)


def test_requests_that_are_none_of_the_four_protocols_never_reach_the_provider(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_request_mib=1.0)
    hosted = {
        WireProtocol.OPENAI_CHAT: {"web_search_options": {"a": 1}},
        WireProtocol.OPENAI_RESPONSES: {"tools": [{"type": "web_search"}]},
        WireProtocol.ANTHROPIC: {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        WireProtocol.GEMINI: {"tools": [{"googleSearch": {}}]},
    }
    with running(settings) as (_, client):
        assert client.get("/").status_code == 200
        assert client.post("/v1/embeddings", json={}).status_code == 404
        assert client.get("/v1/files").status_code == 404
        assert client.delete("/v1/models/x").status_code == 404
        for protocol in WireProtocol:
            path, body = request_of(protocol)
            assert client.post(path, content=b"{not json").status_code == 400
            assert client.post(path, content=b"[1]").status_code == 400
            refused = client.post(path, json={**body, **hosted[protocol]})
            assert refused.status_code == 400, refused.text
            assert "sandbox" in refused.json()["error"]["message"]
            assert client.post(path, json={**body, "pad": "x" * 2**20}).status_code == 413
            bomb = gzip.compress(b" " * 2**26)
            assert client.post(path, content=bomb, headers={"content-encoding": "gzip"}).status_code == 413
            assert client.post(path, content=b"x", headers={"content-encoding": "zstd"}).status_code == 400
            packed = gzip.compress(json.dumps(body).encode())
            assert client.post(path, content=packed, headers={"content-encoding": "gzip"}).status_code == 200
        background = {"model": "m", "input": "x", "background": True}
        assert client.post("/v1/responses", json=background).status_code == 400
        with agent(settings, key="sk-wrong") as stranger:
            path, body = request_of(WireProtocol.ANTHROPIC)
            wrong = stranger.post(path, json=body)
    assert wrong.status_code == 401
    assert wrong.json()["error"]["type"] == "authentication_error"
    assert len(provider.requests) == 4
    assert totals(read_exchanges(tmp_path / "llm")).calls == 4


def test_a_protocol_that_the_driver_does_not_speak_is_an_error(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    settings = settings.model_copy(update={"endpoints": settings.endpoints[:1]})
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.GEMINI)
        answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert "does not speak gemini" in answer.json()["error"]["message"]


def test_a_model_without_a_price_has_an_unknown_cost_never_zero(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, model="nobody-knows-me")
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.OPENAI_CHAT)
        assert client.post(path, json=body).status_code == 200
    total = totals(read_exchanges(tmp_path / "llm"))
    assert (total.dollars, total.n_unknown_cost, total.tokens) == (None, 1, PLAIN)
    assert total.by_model == {"nobody-knows-me": PLAIN}


def test_a_model_that_the_provider_does_not_know_is_the_providers_error(provider, tmp_path):
    provider.then(saying(404, {"error": {"message": "no such model", "code": "model_not_found"}}))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.OPENAI_CHAT)
        answer = client.post(path, json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.dollars, exchange.retries) == (ExchangeOutcome.FAILED, 0.0, 0)


def test_odd_requests_are_answered_and_break_nothing(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_request_mib=1.0)
    big = 10**18
    with running(settings) as (gateway, client):
        for protocol in WireProtocol:
            path, body = request_of(protocol)
            odd = [
                b"",
                b"\xff\xfe",
                b'{"a":' + b"[" * 100_000,
                b'{"messages":' + b"[" * 400_000 + b"]" * 400_000 + b"}",
                b'{"model": "\\ud800", "n": 1e999, "max_tokens": 1' + b"0" * 40 + b"}",
                json.dumps({**body, "max_tokens": big, "max_output_tokens": big, "n": big}).encode(),
                json.dumps({**body, "tools": {"type": "x"}, "stream_options": [1], "generationConfig": 3}).encode(),
            ]
            for text in odd:
                assert client.post(path, content=text).status_code in {200, 400}, text[:80]
            assert client.post("/v1/%ff%fe/messages", content=b"{}").status_code == 404
            strange = {"authorization": b"Bearer \xff\xfe"}
            assert client.post(path, json=body, headers=strange).status_code == 401
            assert client.post(path, json=body).status_code == 200
        assert gateway.n_restarts == 0
    log = (tmp_path / "llm" / "gateway.log").read_text()
    assert "Traceback" not in log
    read_exchanges(tmp_path / "llm")


def test_a_trial_makes_no_more_calls_than_allowed_and_keeps_no_more_bodies(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url, max_calls=3, max_bodies_mib=0.001)
    path, body = request_of(WireProtocol.OPENAI_CHAT)
    noise = {**body, "pad": random.Random(0).randbytes(2000).hex()}
    with running(settings) as (_, client):
        statuses = [client.post(path, json=content).status_code for content in (body, noise, body, body)]
    assert statuses == [200, 200, 200, 403]
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.tokens for exchange in exchanges] == [PLAIN] * 3
    assert [exchange.request is not None for exchange in exchanges] == [True, False, True]
