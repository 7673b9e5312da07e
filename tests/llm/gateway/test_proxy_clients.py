"""The providers' own client libraries against the gateway, with a provider on loopback."""

import asyncio
from collections.abc import Iterator

import anthropic
import httpx
import httpx2
import openai
import pytest
from aiohttp import web
from google import genai
from google.genai import errors, types

from agent2.llm.gateway.recording import ExchangeOutcome, read_exchanges
from agent2.llm.gateway.settings import GatewaySettings
from gateway_fakes import DUMMY, FakeProvider, gateway_settings, running, saying, settle, usual, wait_for
from socket_paths import short_path

pytestmark = pytest.mark.slow

ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
def settings(provider: FakeProvider, tmp_path) -> Iterator[GatewaySettings]:
    gateway = gateway_settings(tmp_path, provider.url)
    with running(gateway):
        yield gateway


def over(settings: GatewaySettings) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=short_path(settings.socket)), timeout=120)


def openai_client(settings: GatewaySettings, **more) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://gateway/v1", api_key=DUMMY, http_client=over(settings), **more)


def anthropic_client(settings: GatewaySettings, **more) -> anthropic.Anthropic:
    client = httpx2.Client(transport=httpx2.HTTPTransport(uds=short_path(settings.socket)), timeout=120)
    return anthropic.Anthropic(base_url="http://gateway", api_key=DUMMY, http_client=client, **more)


def google_client(settings: GatewaySettings, version: str | None = None) -> genai.Client:
    options = types.HttpOptions(base_url="http://gateway", api_version=version, httpx_client=over(settings))
    return genai.Client(api_key=DUMMY, http_options=options)


def test_openais_client_speaks_both_of_its_protocols_with_and_without_a_stream(settings, provider):
    client = openai_client(settings)
    request = {"model": "org/model", "messages": ASK}
    assert client.chat.completions.create(**request).usage.prompt_tokens == 1000
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.content == "hello" and chunks[-1].usage.completion_tokens == 50
    assert client.responses.create(model="m", input="hi").usage.input_tokens == 1000
    assert [event.type for event in client.responses.create(model="m", input="hi", stream=True)][-1].endswith(
        "completed"
    )
    assert client.models.retrieve("org/model").id == "priced"
    assert [exchange.outcome for exchange in read_exchanges(settings.record)] == [ExchangeOutcome.OK] * 4
    assert read_exchanges(settings.record)[0].asked_model == "org/model"


def test_anthropics_client_speaks_with_and_without_a_stream_and_counts(settings, provider):
    client = anthropic_client(settings)
    request = {"model": "org/model", "max_tokens": 50, "messages": ASK}
    assert client.messages.create(**request).content[0].text == "hello"
    with client.messages.stream(**request) as stream:
        assert "".join(stream.text_stream) == "hello"
    assert client.messages.count_tokens(model="m", messages=ASK).input_tokens == 123
    assert [exchange.tokens.input for exchange in read_exchanges(settings.record)] == [1000, 1000, 0]


@pytest.mark.parametrize(
    ("version", "at"), [(None, "/v1"), ("v1", "/v1"), ("v1beta", "/v1beta"), ("v1alpha", "/v1alpha")]
)
def test_googles_client_reaches_the_version_that_it_asks_for(settings, provider, version, at):
    client = google_client(settings, version)
    assert client.models.generate_content(model="org/model", contents="hi").text == "hello"
    texts = [chunk.text for chunk in client.models.generate_content_stream(model="gemini-x", contents="hi")]
    assert texts == ["hello", "hello"]  # the fake says it in both of its events
    assert client.models.count_tokens(model="gemini-x", contents="hi").total_tokens == 123
    assert client.models.get(model="org/model").name == "models/priced"
    paths = [request["path"].partition("/models/") for request in provider.requests]
    assert {start for start, _, _ in paths} in ({at}, {"/v1beta"} if version is None else {at})
    assert [end for _, _, end in paths] == [
        f"priced:{w}" for w in ("generateContent", "streamGenerateContent", "countTokens")
    ]


def test_headers_about_rate_limits_reach_the_clients(settings, provider):
    provider.then(
        saying(
            200, {"choices": []}, {"x-ratelimit-remaining-tokens": "77", "x-secret": "1", "openai-organization": "o"}
        ),
        saying(429, {"error": {}}, {"x-ratelimit-remaining-requests": "0", "retry-after": "3600"}),
        saying(200, {"content": []}, {"anthropic-ratelimit-tokens-remaining": "88"}),
    )
    raw = openai_client(settings, max_retries=0).chat.completions.with_raw_response
    headers = raw.create(model="m", messages=ASK).headers
    assert headers["x-ratelimit-remaining-tokens"] == "77"
    assert "openai-organization" not in headers
    with pytest.raises(openai.RateLimitError) as limited:
        raw.create(model="m", messages=ASK)
    assert limited.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    answer = anthropic_client(settings).messages.with_raw_response.create(model="m", max_tokens=9, messages=ASK)
    assert answer.headers["anthropic-ratelimit-tokens-remaining"] == "88"


@pytest.mark.parametrize("make", [openai_client, anthropic_client])
def test_a_client_that_gives_up_and_tries_twice_more_is_billed_once(settings, provider, make):
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(600)  # longer than all three tries, however slow
        return usual(request, await request.read())

    provider.then(slow)
    client = make(settings, timeout=0.4, max_retries=2)

    def seen(_) -> None:
        """Try again when the gateway has seen the try before, however late it was."""
        if tries:
            wait_for(lambda: len(provider.requests) > 0)
            settle(settings)
        tries.append(True)

    tries: list[bool] = []
    client._client.event_hooks = {"request": [seen]}
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        if isinstance(client, openai.OpenAI):
            client.chat.completions.create(model="m", messages=ASK)
        else:
            client.messages.create(model="m", max_tokens=9, messages=ASK)
    assert len(tries) == 3 and len(provider.requests) == 1
    assert len(read_exchanges(settings.record)) == 1


def test_what_would_reach_out_is_an_error_that_clients_do_not_repeat(settings, provider):
    client = openai_client(settings)
    with pytest.raises(openai.BadRequestError, match="sandbox"):
        client.chat.completions.create(model="m", messages=ASK, web_search_options={})
    with pytest.raises(openai.BadRequestError, match="keeps"):
        client.responses.create(model="m", input=[{"type": "item_reference", "id": "msg_1"}])
    block = {"type": "container_upload", "file_id": "file_1"}
    with pytest.raises(anthropic.BadRequestError, match="keeps"):
        message = {"role": "user", "content": [block]}
        anthropic_client(settings).messages.create(model="m", max_tokens=9, messages=[message])
    with pytest.raises(errors.ClientError, match="fetched"):
        part = types.Part.from_uri(file_uri="gs://bucket/x", mime_type="image/png")
        google_client(settings).models.generate_content(model="m", contents=[part])
    assert provider.requests == []


def test_half_a_character_in_the_history_blocks_no_call(settings, provider):
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=short_path(settings.socket)), base_url="http://g", timeout=120
    ) as client:
        body = b'{"model": "m", "messages": [{"role": "tool", "content": "cut \\ud83d"}]}'
        answer = client.post("/v1/chat/completions", content=body, headers={"authorization": f"Bearer {DUMMY}"})
    assert answer.status_code == 200
    assert "cut \ufffd".encode() in provider.requests[0]["body"]
