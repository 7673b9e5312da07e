"""What an agent may not have a provider do for it."""

import json

import pytest

from agent2.arena.gateway.outreach import BadRequest, refuse_addresses
from agent2.arena.gateway.requests import prepare
from agent2.arena.gateway.routes import Kind, Route
from agent2.arena.gateway.settings import WireProtocol

CHAT, RESPONSES, ANTHROPIC, GEMINI = WireProtocol
PIXEL = "data:image/png;base64,AAAA"
WEB = "https://example.org/x?what=the-agent-tells"


def send(protocol, kind=Kind.GENERATE, **fields):
    return json.loads(prepare(json.dumps(fields).encode(), Route(protocol, kind, "m", True), "pinned").body)


@pytest.mark.parametrize(
    ("protocol", "tools"),
    [
        (CHAT, [{"type": "openrouter:web_search"}]),
        (RESPONSES, [{"type": "a_kind_of_next_year"}]),
        (RESPONSES, [{"type": "shell", "environment": {"type": "container_auto"}}]),
        (RESPONSES, [{"type": "namespace", "name": "n", "tools": [{"type": "mcp", "server_url": WEB}]}]),
        (ANTHROPIC, [{"type": ["web_search_20250305"]}]),
        (GEMINI, {"google_search": {}}),
        (GEMINI, [{"functionDeclarations": [], "urlContext": {}}]),
    ],
)
def test_a_tool_that_may_run_at_the_provider_is_refused_however_it_is_named(protocol, tools):
    with pytest.raises(BadRequest):
        send(protocol, tools=tools)


@pytest.mark.parametrize(
    ("protocol", "tools"),
    [
        (RESPONSES, [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]),
        (RESPONSES, [{"type": "shell", "environment": {"type": "local"}}]),
        (ANTHROPIC, [{"name": "Bash"}, {"type": "text_editor_20250728", "name": "edit"}]),
        (GEMINI, [{"functionDeclarations": [{"name": "f"}]}]),
    ],
)
def test_the_agents_own_tools_pass(protocol, tools):
    assert send(protocol, tools=tools)["tools"] == tools


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt", "cachedContent", "plugins"])
def test_what_the_provider_keeps_or_plugs_in_is_refused_in_every_protocol(name):
    for protocol in WireProtocol:
        with pytest.raises(BadRequest, match=name):
            send(protocol, **{name: ["x"]})


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    ("protocol", "part"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": WEB}}),
        (CHAT, {"type": "file", "file": {"filename": "a.pdf", "file_data": WEB}}),
        (RESPONSES, {"type": "input_image", "image_url": f" {WEB.upper()}"}),
        (RESPONSES, {"type": "input_file", "file_url": WEB}),
        (ANTHROPIC, {"type": "document", "source": {"type": "url", "url": WEB}}),
        (GEMINI, {"fileData": {"fileUri": "gs://bucket/x"}}),
        (GEMINI, {"file_data": {"file_uri": WEB}}),
        (RESPONSES, {"type": "tool_search_output", "tools": [{"type": "web_search"}]}),
    ],
)
def test_an_address_for_the_provider_to_fetch_is_refused(protocol, part, kind):
    with pytest.raises(BadRequest, match="provider"):
        send(protocol, kind, messages=[{"role": "user", "content": [part]}])


def test_a_request_cannot_pass_for_a_tools_own():
    with pytest.raises(BadRequest, match="fetched"):
        refuse_addresses(json.dumps({"type": "tool_use", "input": [{"image_url": WEB}]}).encode())


def test_an_address_behind_escapes_is_found():
    with pytest.raises(BadRequest, match="fetched"):
        refuse_addresses(rb'{"input": [{"image\u005furl": "https:\/\/example.org"}]}')


def test_addresses_in_texts_data_and_the_agents_own_tools_pass():
    parts = [
        {"type": "text", "text": f'see {WEB}, "url" and \ud83d'},
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "tool_use", "name": "fetch", "input": {"type": "url", "url": WEB}},
        {"properties": {"type": {"type": "string"}, "image_url": {"type": "string", "format": "uri"}}},
        {"functionCall": {"name": "fetch", "args": {"image_url": WEB}}},
        {"functionResponse": {"name": "fetch", "response": {"file_url": WEB}}},
    ]
    refuse_addresses(json.dumps({"messages": parts}).encode())


def test_fields_that_change_the_price_of_a_token_do_not_reach_the_provider():
    repricing = {"service_tier": "priority", "speed": "fast", "models": ["dear/one"], "provider": {"only": ["dear"]}}
    for protocol in WireProtocol:
        assert set(send(protocol, **repricing, temperature=0)) <= {"model", "temperature", "stream"}
