"""A recorded trial is served again without a provider."""

import json
import os
import signal

import httpx
import pytest
import zstandard

from agent2.errors import ConfigError
from agent2.llm.gateway.recording import ExchangeOutcome, body_path, read_exchanges, totals
from agent2.llm.gateway.settings import ReplaySettings
from agent2.llm.gateway.supervisor import Gateway, GatewayError
from agent2.llm.records import WireProtocol
from gateway_fakes import chat_chunks, gateway_settings, request_of, running, saying, sse, streaming, wait_for

pytestmark = pytest.mark.slow

STREAM = True
FIRST = "It is 2026-11-21T10:00:00Z, session 0b0e7c2a-1111-4222-8333-944455556666, see /tmp/abc123/x; train took 1.5s"
AGAIN = "It is 2027-01-02T23:59:59Z, session ffffffff-2222-4333-8444-a55566667777, see /tmp/zzz999/x; train took 17s"


def record(provider, root, *requests):
    """A recorded trial."""
    root.mkdir()
    with running(gateway_settings(root, provider.url)) as (_, client):
        return [client.post(path, json=body) for path, body in requests]


def replay_settings(root, source, **fields):
    root.mkdir()
    replay = ReplaySettings(source=source / "llm", **fields)
    return gateway_settings(root, None, replay=replay)


def differences(root):
    path = root / "llm" / "differences.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_same_requests_get_the_same_answers_in_any_order_with_no_provider(provider, tmp_path):
    requests = [request_of(p, FIRST, stream=s) for p in WireProtocol for s in (False, True)]
    source, root = tmp_path / "source", tmp_path / "replay"
    recorded = record(provider, source, *requests)
    n_asked = len(provider.requests)
    again = [request_of(p, AGAIN, stream=s) for p in WireProtocol for s in (False, True)]
    with running(replay_settings(root, source, strict=True)) as (_, client):
        answers = [client.post(path, json=body) for path, body in reversed(again)]
    for old, new in zip(reversed(recorded), answers, strict=True):
        assert (new.status_code, new.content) == (old.status_code, old.content)
        assert new.headers["content-type"] == old.headers["content-type"]
    assert len(provider.requests) == n_asked
    assert differences(root) == []
    replayed = totals(read_exchanges(root / "llm"))
    original = totals(read_exchanges(source / "llm"))
    assert (replayed.tokens, replayed.dollars) == (original.tokens, pytest.approx(original.dollars))
    assert (replayed.n_replayed, original.n_replayed) == (8, 0)


def test_errors_and_cut_streams_are_replayed_too(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    path, body = request_of(WireProtocol.OPENAI_CHAT, "one", stream=True)
    provider.then(saying(400, {"error": {"message": "bad"}}), streaming(sse(chat_chunks()[0]), cut=True))
    source.mkdir()
    with running(gateway_settings(source, provider.url)) as (_, client):
        assert client.post(path, json=body).status_code == 400
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(path, json=body)
    with running(replay_settings(root, source)) as (_, client):
        assert client.post(path, json=body).json() == {"error": {"message": "bad"}}
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(path, json=body)
    assert [exchange.outcome for exchange in read_exchanges(root / "llm")] == [
        ExchangeOutcome.FAILED,
        ExchangeOutcome.PARTIAL,
    ]


def test_a_request_that_differs_is_shown_as_a_diff_and_goes_on(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    record(provider, source, *(request_of(WireProtocol.ANTHROPIC, f"line a\nstep {n}\nline c") for n in (1, 2)))
    with running(replay_settings(root, source)) as (_, client):
        path, body = request_of(WireProtocol.ANTHROPIC, "line a\nstep 1 was changed\nline c")
        assert client.post(path, json=body).status_code == 200
        path, body = request_of(WireProtocol.ANTHROPIC, "line a\nstep 2\nline c")
        assert client.post(path, json=body).status_code == 200
        beyond = client.post(path, json=body)
    assert beyond.status_code == 400
    assert "no further answer" in beyond.json()["error"]["message"]
    first, last = differences(root)
    assert (first["expected"], first["served"]) == (1, True)
    assert "-step 1\n+step 1 was changed\n" in first["diff"]
    assert "line a\n-step" in first["diff"]
    assert (last["expected"], last["served"]) == (None, False)
    assert [exchange.replay_of for exchange in read_exchanges(root / "llm")] == [1, 2, None]


def test_a_strict_replay_answers_a_difference_with_an_error(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    record(provider, source, request_of(WireProtocol.OPENAI_RESPONSES, "as it was"))
    with running(replay_settings(root, source, strict=True)) as (_, client):
        path, body = request_of(WireProtocol.OPENAI_RESPONSES, "otherwise")
        refused = client.post(path, json=body)
        path, body = request_of(WireProtocol.OPENAI_RESPONSES, "as it was")
        assert client.post(path, json=body).status_code == 200
    assert refused.status_code == 400
    assert "differs from recorded exchange 1" in refused.json()["error"]["message"]
    assert [difference["served"] for difference in differences(root)] == [False]


def test_a_difference_takes_the_answer_for_the_same_model_first(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    small = request_of(WireProtocol.ANTHROPIC, "title", model="small")
    large = request_of(WireProtocol.ANTHROPIC, "work", model="large")
    record(provider, source, small, large)
    with running(replay_settings(root, source)) as (_, client):
        path, body = request_of(WireProtocol.ANTHROPIC, "other work", model="large")
        client.post(path, json=body)
    assert [exchange.replay_of for exchange in read_exchanges(root / "llm")] == [2]


def test_what_an_agent_declares_volatile_may_differ(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    record(provider, source, request_of(WireProtocol.GEMINI, "my lucky number is 1234"))
    settings = replay_settings(root, source, strict=True, volatile=(r"lucky number is \d+",))
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.GEMINI, "my lucky number is 99")
        assert client.post(path, json=body).status_code == 200
    with pytest.raises(ConfigError, match="is not a regular expression"):
        Gateway.start(replay_settings(tmp_path / "other", source, volatile=("(",)))


def test_a_replay_goes_on_after_a_kill(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    same = request_of(WireProtocol.OPENAI_CHAT, "the same each time")
    record(provider, source, same, same, same)
    with running(replay_settings(root, source)) as (gateway, client):
        for n_kills in range(3):
            assert client.post(same[0], json=same[1]).status_code == 200
            wait_for(lambda: read_exchanges(root / "llm")[-1].outcome is ExchangeOutcome.OK)
            os.kill(gateway.pid, signal.SIGKILL)
            wait_for(lambda n=n_kills: gateway.n_restarts == n + 1)
    assert [exchange.replay_of for exchange in read_exchanges(root / "llm")] == [1, 2, 3]
    assert differences(root) == []


def test_a_recording_without_its_bodies_is_refused_by_name(provider, tmp_path):
    source = tmp_path / "source"
    record(provider, source, *(request_of(WireProtocol.OPENAI_CHAT, f"step {n}") for n in range(2)))
    body = body_path(source / "llm", 2, "request")
    whole = body.read_bytes()
    body.write_bytes(whole[:-5])
    with pytest.raises(GatewayError, match=r"000002\.request\.zst"):
        Gateway.start(replay_settings(tmp_path / "a", source))
    body.write_bytes(zstandard.ZstdCompressor().compress(b"{}"))
    body_path(source / "llm", 2, "response").unlink()
    with pytest.raises(GatewayError, match="exchange 2 has an end but not both bodies"):
        Gateway.start(replay_settings(tmp_path / "b", source))
    with pytest.raises(GatewayError, match="contains no recorded answer"):
        Gateway.start(replay_settings(tmp_path / "c", tmp_path / "nothing"))


def test_a_recording_that_was_cut_is_served_as_far_as_it_goes(provider, tmp_path):
    source, root = tmp_path / "source", tmp_path / "replay"
    requests = [request_of(WireProtocol.OPENAI_CHAT, f"step {n}") for n in range(3)]
    record(provider, source, *requests)
    path = source / "llm" / "exchanges.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    with running(replay_settings(root, source)) as (_, client):
        statuses = [client.post(path, json=body).status_code for path, body in requests]
    assert statuses == [200, 200, 400]
