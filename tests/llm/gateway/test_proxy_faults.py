"""What goes wrong around a gateway: providers, disks, kills; and that keys stay where they belong."""

import asyncio
import json
import os
import resource
import signal
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest
from aiohttp import web

from agent2.errors import ConfigError
from agent2.llm.gateway.recording import ExchangeOutcome, RecordingError, read_body, read_exchanges, totals
from agent2.llm.gateway.supervisor import Gateway, GatewayError
from agent2.llm.records import TokenCounts, WireProtocol
from gateway_fakes import (
    DUMMY,
    KEY,
    agent,
    answer_stream,
    chat_chunks,
    gateway_settings,
    hang_up_when,
    held,
    request_of,
    running,
    saying,
    settle,
    sse,
    streaming,
    usual,
    wait_for,
)
from socket_paths import short_path

pytestmark = pytest.mark.slow

CHAT = request_of(WireProtocol.OPENAI_CHAT)
STREAM = request_of(WireProtocol.OPENAI_CHAT, stream=True)


def post(client: httpx.Client, request: tuple[str, dict[str, object]]) -> httpx.Response:
    return client.post(request[0], json=request[1])


def test_a_provider_that_is_down_is_an_error_in_the_protocols_shape_and_costs_nothing(tmp_path):
    settings = gateway_settings(tmp_path, "http://127.0.0.1:9", max_retries=1)
    with running(settings) as (_, client):
        for protocol in WireProtocol:
            answer = post(client, request_of(protocol))
            assert answer.status_code == 502
            assert "cannot be reached" in answer.json()["error"]["message"]
            assert "127.0.0.1" not in answer.text
    exchanges = read_exchanges(tmp_path / "llm")
    assert {(exchange.outcome, exchange.retries, exchange.dollars) for exchange in exchanges} == {
        (ExchangeOutcome.FAILED, 1, 0.0)
    }


def test_a_provider_that_says_nothing_is_given_up(provider, tmp_path):
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(600)
        return web.json_response({})

    settings = gateway_settings(tmp_path, provider.url, idle_timeout_s=2.0)
    with running(settings) as (_, client):
        for _ in range(20):  # on a machine that stands still, even the provider's first words may come too late
            provider.then(streaming(answer_stream(WireProtocol.OPENAI_CHAT), wait_s=600))
            try:
                assert post(client, STREAM).status_code == 504
            except httpx.RemoteProtocolError:
                break
        provider.then(silent)
        answer = post(client, CHAT)
    assert answer.status_code == 504
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.outcome for exchange in exchanges[-2:]] == [ExchangeOutcome.PARTIAL, ExchangeOutcome.FAILED]
    assert len(provider.requests) == len(exchanges)


def test_429_is_tried_again_when_the_provider_says(provider, tmp_path):
    provider.then(saying(429, headers={"retry-after": "1"}), saying(529, headers={"retry-after-ms": "10"}))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        began = time.monotonic()
        answer = post(client, STREAM)
        assert time.monotonic() - began >= 1.0
    assert answer.status_code == 200
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.retries, exchange.tokens.input) == (ExchangeOutcome.OK, 2, 1000)


def test_an_error_that_does_not_pass_soon_goes_to_the_agent_as_it_is(provider, tmp_path):
    errors = [
        (429, {"error": {"message": "later"}}, {"retry-after": "3600"}),
        (429, {"error": {"code": "insufficient_quota"}}, {}),
        (503, {"error": {"message": "no"}}, {"x-should-retry": "false"}),
        (400, {"error": {"message": "bad"}}, {}),
    ]
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        for number, (status, body, headers) in enumerate(errors, 1):
            provider.then(saying(status, body, headers))
            answer = post(client, CHAT)
            assert (answer.status_code, answer.json()) == (status, body)
            assert answer.headers.get("retry-after") == headers.get("retry-after")
            assert len(provider.requests) == number


def test_500_is_tried_again_a_few_times_and_then_passed_on(provider, tmp_path):
    provider.then(*[saying(500, {"error": {"message": "broken"}}, {"retry-after-ms": "1"})] * 3)
    settings = gateway_settings(tmp_path, provider.url, max_retries=2)
    with running(settings) as (_, client):
        answer = post(client, CHAT)
    assert answer.status_code == 500
    assert len(provider.requests) == 3
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.retries, exchange.status) == (ExchangeOutcome.FAILED, 2, 500)


def test_a_cut_stream_is_cut_for_the_agent_too_and_counts_what_was_seen(provider, tmp_path):
    whole = answer_stream(WireProtocol.ANTHROPIC)
    provider.then(streaming(whole[: whole.index(b"event: message_delta")], cut=True))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        path, body = request_of(WireProtocol.ANTHROPIC, stream=True)
        got = b""
        with pytest.raises(httpx.RemoteProtocolError), client.stream("POST", path, json=body) as answer:
            for piece in answer.iter_raw():
                got += piece
    assert b"hello" in got
    assert len(provider.requests) == 1, "nothing is tried again after the first byte"
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.counted, exchange.cut) == (ExchangeOutcome.PARTIAL, False, True)
    assert (exchange.tokens.input, exchange.tokens.output, exchange.dollars) == (1000, 1, None)
    assert "broke off" in exchange.fault


def test_a_stream_that_ends_without_its_last_event_is_partial(provider, tmp_path):
    provider.then(streaming(sse(*chat_chunks()[:1])))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        assert "hello" in post(client, STREAM).text
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.tokens) == (ExchangeOutcome.PARTIAL, TokenCounts())
    assert "last event" in exchange.fault


def test_a_malformed_stream_is_passed_on_and_flagged(provider, tmp_path):
    text = sse(chat_chunks()[0]) + b'data: {"choices": [}\n\n' + sse(*chat_chunks()[1:], done=True)
    provider.then(streaming(text))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        answer = post(client, STREAM)
    assert b'data: {"choices": [}\n\n' in answer.content
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.counted, exchange.tokens.input) == (ExchangeOutcome.PARTIAL, True, 1000)
    assert "not JSON" in exchange.fault


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "12", "completion_tokens": -3}, {"prompt_tokens": 0}])
def test_an_answer_without_usage_that_can_be_used_is_estimated_and_ends_a_budget(provider, tmp_path, usage):
    choices = [{"message": {"role": "assistant", "content": "x" * 2_000}}]
    provider.then(*[saying(200, {"choices": choices, "usage": usage})] * 3)
    settings = gateway_settings(tmp_path, provider.url, max_tokens=4_100, unlisted_output_tokens=1_900)
    with running(settings) as (_, client):
        statuses = [post(client, CHAT).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 403]
    exchanges = read_exchanges(tmp_path / "llm")
    assert {(exchange.counted, exchange.estimated, exchange.tokens.output) for exchange in exchanges[:3]} == {
        (False, True, 1_000)
    }
    assert "estimated" in exchanges[0].fault
    total = totals(exchanges)
    assert (total.calls, total.n_estimated, total.n_uncounted, total.n_unknown_cost) == (3, 3, 0, 3)
    assert total.dollars is None


def test_a_client_that_gives_up_and_asks_again_is_billed_once(provider, tmp_path):
    for stream in (False, True):
        path, body = request_of(WireProtocol.OPENAI_CHAT, f"stream {stream}", stream=stream)
        n_before, may_answer = len(provider.requests), threading.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            return usual(request, await request.read())

        provider.then(held(may_answer, answer))
        settings = gateway_settings(tmp_path, provider.url)
        with running(settings) as (_, client):
            hang_up_when(lambda n=n_before: len(provider.requests) == n + 1, settings, (path, body))
            settle(settings)
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=body, timeout=0.3)
            settle(settings)
            threading.Timer(0.5, may_answer.set).start()
            first = client.post(path, json=body)  # joins the call that is under way
            assert first.status_code == 200 and "hello" in first.text
            assert first.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
            assert len(provider.requests) == n_before + 1
            assert client.post(path, json=body).status_code == 200  # a new request: the first was answered
            assert len(provider.requests) == n_before + 2
    exchanges = read_exchanges(tmp_path / "llm")
    assert [(exchange.outcome, exchange.tokens.input) for exchange in exchanges] == [(ExchangeOutcome.OK, 1000)] * 4
    assert "asked again" in exchanges[0].fault


def test_an_answer_that_nobody_was_there_to_get_is_given_to_who_asks_again_once(provider, tmp_path):
    may_answer = threading.Event()
    provider.then(held(may_answer, streaming(*map(sse, chat_chunks()), b"data: [DONE]\n\n", wait_s=0.1)))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        hang_up_when(lambda: len(provider.requests) == 1, settings, STREAM)
        settle(settings)
        may_answer.set()
        wait_for(lambda: read_exchanges(tmp_path / "llm")[0].outcome is not ExchangeOutcome.OPEN)
        assert post(client, STREAM).text.endswith("[DONE]\n\n")
        assert len(provider.requests) == 1
        assert post(client, STREAM).status_code == 200
        assert len(provider.requests) == 2


def test_the_same_request_twice_at_once_is_two_calls(provider, tmp_path):
    async def both() -> list[int]:
        transport = httpx.AsyncHTTPTransport(uds=short_path(tmp_path / "llm.sock"))
        headers = {"authorization": f"Bearer {DUMMY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://g", headers=headers, timeout=120) as client:
            return [a.status_code for a in await asyncio.gather(*(client.post(CHAT[0], json=CHAT[1]) for _ in "ab"))]

    with running(gateway_settings(tmp_path, provider.url)):
        assert asyncio.run(both()) == [200, 200]
    assert len(provider.requests) == 2


def test_nothing_is_tried_again_for_an_agent_that_has_left(provider, tmp_path):
    has_left, refusal = threading.Event(), saying(503, headers={"retry-after": "1"})
    provider.then(held(has_left, refusal), refusal, refusal)
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings):
        hang_up_when(lambda: len(provider.requests) == 1, settings, CHAT)
        settle(settings)
        has_left.set()
        wait_for(lambda: read_exchanges(tmp_path / "llm")[0].outcome is not ExchangeOutcome.OPEN)
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.dollars, len(provider.requests)) == (ExchangeOutcome.FAILED, 0.0, 1)
    assert "gave up" in exchange.fault


def test_an_agent_that_hangs_up_does_not_hide_what_it_cost(provider, tmp_path):
    first, *chunks = [sse(chunk) for chunk in chat_chunks()]
    has_left = threading.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(first)
        assert await asyncio.to_thread(has_left.wait, 120)
        await response.write(b"".join(chunks) + b"data: [DONE]\n\n")
        return response

    provider.then(answer)
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        with client.stream("POST", STREAM[0], json=STREAM[1]) as answered:
            next(answered.iter_raw())
        settle(settings)
        has_left.set()
        wait_for(lambda: read_exchanges(tmp_path / "llm")[0].outcome is not ExchangeOutcome.OPEN)
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert (exchange.outcome, exchange.tokens.input, exchange.counted) == (ExchangeOutcome.OK, 1000, True)
    assert "hung up" in exchange.fault


def test_a_redirect_is_not_followed_with_the_key(provider, tmp_path):
    provider.then(saying(302, headers={"location": f"{provider.url}/elsewhere"}))
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        assert post(client, CHAT).status_code == 502
    assert len(provider.requests) == 1


def test_a_gateway_killed_in_the_middle_of_a_call_is_started_again_and_the_call_is_lost_not_free(provider, tmp_path):
    piece = sse(chat_chunks()[0])
    provider.then(streaming(*[piece] * 3000, wait_s=0.1))
    settings = gateway_settings(tmp_path, provider.url, max_tokens=40_000, unlisted_output_tokens=15_000)
    with running(settings) as (gateway, client):
        first = gateway.pid
        with pytest.raises(httpx.HTTPError), client.stream("POST", STREAM[0], json=STREAM[1]) as answer:
            for index, _ in enumerate(answer.iter_raw()):
                if index == 2:
                    os.kill(first, signal.SIGKILL)
        # The socket is the harness's: who connects now waits for the next process.
        assert post(client, CHAT).status_code == 200
        assert gateway.n_restarts == 1
        assert gateway.pid != first and psutil.pid_exists(gateway.pid)
        # 15,000 of the lost call and 1,050 are spent; a third call of 15,000 fits, a fourth does not.
        assert post(client, CHAT).status_code == 200
        big = {**CHAT[1], "max_tokens": 25_000}
        assert client.post(CHAT[0], json=big).status_code == 403
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.outcome for exchange in exchanges] == [
        ExchangeOutcome.LOST,
        ExchangeOutcome.OK,
        ExchangeOutcome.OK,
        ExchangeOutcome.REFUSED,
    ]
    assert exchanges[0].tokens.output == 15_000
    total = totals(exchanges)
    assert (total.n_lost, total.calls) == (1, 3)
    assert total.tokens.output == 15_100


def test_a_torn_last_line_is_cut_and_a_damaged_middle_is_refused(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (_, client):
        assert post(client, CHAT).status_code == 200
        assert post(client, CHAT).status_code == 200
    path = tmp_path / "llm" / "exchanges.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert [exchange.outcome for exchange in read_exchanges(tmp_path / "llm")] == [
        ExchangeOutcome.OK,
        ExchangeOutcome.OPEN,
    ]
    with running(settings) as (_, client):
        assert post(client, CHAT).status_code == 200
    exchanges = read_exchanges(tmp_path / "llm")
    assert [exchange.outcome for exchange in exchanges] == [
        ExchangeOutcome.OK,
        ExchangeOutcome.LOST,
        ExchangeOutcome.OK,
    ]
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:30], *lines[2:]]))
    with pytest.raises(RecordingError, match=r"exchanges\.jsonl:2: is not a line"):
        read_exchanges(tmp_path / "llm")
    with pytest.raises(GatewayError, match=r"exchanges\.jsonl:2"):
        Gateway.start(settings)


def test_a_call_that_cannot_be_recorded_is_not_made(provider, tmp_path):
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (gateway, client):
        assert post(client, CHAT).status_code == 200
        wait_for(lambda: read_exchanges(tmp_path / "llm")[0].outcome is ExchangeOutcome.OK)
        size = (tmp_path / "llm" / "exchanges.jsonl").stat().st_size
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        assert post(client, CHAT).status_code == 503
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert post(client, CHAT).status_code == 200
    assert len(provider.requests) == 2
    assert [exchange.outcome for exchange in read_exchanges(tmp_path / "llm")] == [
        ExchangeOutcome.OK,
        ExchangeOutcome.OK,
    ]


def test_the_key_is_on_no_disk_in_no_log_in_no_answer_and_in_no_process_listing(provider, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", KEY)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "key": KEY}}
    text = json.dumps({"choices": [{"delta": {"content": f"your key is {KEY}, is it not"}}]}).encode()
    half = text.index(KEY.encode()) + 7
    provider.then(
        saying(401, echo, {"x-request-id": KEY}),
        streaming(b"data: " + text[:half], text[half:] + b"\n\ndata: [DONE]\n\n", wait_s=0.05),
        saying(200, {"choices": [{"message": {"content": KEY}}]}),
    )
    settings = gateway_settings(tmp_path, provider.url)
    with running(settings) as (gateway, client):
        answers = [post(client, CHAT), post(client, STREAM), post(client, CHAT)]
        process = psutil.Process(gateway.pid)
        assert KEY not in " ".join(process.cmdline())
        assert KEY not in str(process.environ())
    for answer in answers:
        assert KEY not in answer.text + str(answer.headers)
        assert "[redacted]" in answer.text
    assert answers[1].text.endswith("[DONE]\n\n")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 8
    for path in files:
        assert KEY.encode() not in path.read_bytes() and KEY.encode() not in unpacked(path), path
    assert KEY not in repr(settings) + settings.model_dump_json()


def unpacked(path: Path) -> bytes:
    return read_body(path) if path.suffix == ".zst" else b""


def test_a_budget_of_dollars_needs_a_price_and_a_gateway_needs_a_provider(tmp_path):
    with pytest.raises(ConfigError, match="price of 'unheard-of' is unknown"):
        Gateway.start(gateway_settings(tmp_path, "http://127.0.0.1:9", model="unheard-of", max_dollars=1.0))
    with pytest.raises(ConfigError, match="needs an endpoint"):
        Gateway.start(gateway_settings(tmp_path, None))


def test_a_gateway_that_is_stopped_ends_its_calls_and_says_so(provider, tmp_path):
    provider.then(streaming(*[sse(chat_chunks()[0])] * 3000, wait_s=0.1))
    settings = gateway_settings(tmp_path, provider.url)
    gateway = Gateway.start(settings)
    arrived, failed = threading.Event(), threading.Event()

    def call() -> None:
        with agent(settings) as client:
            try:
                with client.stream("POST", STREAM[0], json=STREAM[1]) as answer:
                    for _ in answer.iter_raw():
                        arrived.set()
            except httpx.HTTPError:
                failed.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert arrived.wait(120)
    gateway.stop()
    gateway.stop()
    thread.join(120)
    assert failed.is_set()
    assert not psutil.pid_exists(gateway.pid) and not settings.socket.exists()
    (exchange,) = read_exchanges(tmp_path / "llm")
    assert exchange.outcome is ExchangeOutcome.PARTIAL
    assert "stopped" in exchange.fault
