"""What an agent may not have a provider do for it."""

import json

import pytest

from agent2.llm.gateway.requests import BadRequest, prepare, refuse_addresses
from agent2.llm.gateway.routes import RequestKind, WireRoute
from agent2.llm.records import WireProtocol

CHAT, RESPONSES, ANTHROPIC, GEMINI = WireProtocol
PIXEL = "data:image/png;base64,AAAA"
WEB = "https://example.org/x?what=the-agent-tells"


def send(protocol, kind=RequestKind.GENERATE, **fields):
    return json.loads(prepare(json.dumps(fields).encode(), WireRoute(protocol, kind, "m", True), "pinned").body)


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


@pytest.mark.parametrize("kind", RequestKind)
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
        refuse_addresses({"type": "tool_use", "input": [{"image_url": WEB}]})


def test_an_address_behind_escapes_is_found():
    with pytest.raises(BadRequest, match="fetched"):
        raw(rb'{"input": [{"image\u005furl": "https:\/\/example.org"}]}')


def test_addresses_in_texts_data_and_the_agents_own_tools_pass():
    parts = [
        {"type": "text", "text": f'see {WEB}, "url" and \ud83d'},
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "tool_use", "name": "fetch", "input": {"type": "url", "url": WEB}},
        {"properties": {"type": {"type": "string"}, "image_url": {"type": "string", "format": "uri"}}},
        {"functionCall": {"name": "fetch", "args": {"image_url": WEB}}},
        {"functionResponse": {"name": "fetch", "response": {"file_url": WEB}}},
    ]
    refuse_addresses({"messages": parts})


def test_fields_that_change_the_price_of_a_token_do_not_reach_the_provider():
    repricing = {"service_tier": "priority", "speed": "fast", "models": ["dear/one"], "provider": {"only": ["dear"]}}
    for protocol in WireProtocol:
        assert set(send(protocol, **repricing, temperature=0)) <= {"model", "temperature", "stream"}


def raw(text, protocol=CHAT, kind=RequestKind.GENERATE):
    return prepare(text if isinstance(text, bytes) else text.encode(), WireRoute(protocol, kind, "m", True), "pinned")


@pytest.mark.parametrize(
    "address",
    [
        "ht\ntp://example.org/x",
        "\thttps://example.org/x",
        "\x00https://example.org/x",
        "\u00a0https://example.org/x",
        "\ufeffhttps://example.org/x",
        "//example.org/x",
        "/etc/passwd",
        "example.org/x",
        "DATA:\n,https://example.org",
        "dаta:image/png;base64,AAAA",  # a Cyrillic letter
        ["https://example.org/x"],
        {"Url": WEB},
        {"uri": WEB},
    ],
)
def test_only_data_passes_for_an_address_whatever_else_a_fetcher_may_make_of_it(address):
    with pytest.raises(BadRequest, match="only data:"):
        send(CHAT, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": address}]}])
    with pytest.raises(BadRequest, match="only data:"):
        send(RESPONSES, input=[{"role": "user", "content": [{"type": "input_image", "image_url": {"url": address}}]}])


@pytest.mark.parametrize("field", ["IMAGE_URL", "imageUrl", "image_Url", "FILEURI", "file_Url"])
def test_an_address_is_found_however_a_lenient_server_would_spell_its_field(field):
    with pytest.raises(BadRequest, match="only data:"):
        send(CHAT, messages=[{"role": "user", "content": [{field: {"url": WEB}}]}])


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [{"image_url": "data:,a", "image_url": "https://example.org"}]}',
        '{"messages": [], "tools": [], "tools": [{"type": "web_search"}]}',
        '{"messages": [{"content": [{"a": {"b": 1, "\\u0062": 2}}]}]}',
    ],
)
def test_a_name_that_comes_twice_in_one_object_is_refused_however_deep_it_is(text):
    with pytest.raises(BadRequest, match="twice"):
        raw(text)


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        (CHAT, {"web_search_options": {}}),
        (CHAT, {"Web_Search_Options": {}}),
        (CHAT, {"search_parameters": {"mode": "on"}}),
        (CHAT, {"enable_search": True}),
        (CHAT, {"Model": "another"}),
        (CHAT, {"MODEL": "another"}),
        (CHAT, {"Stream": True}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        (RESPONSES, {"input": [{"id": "msg_1"}]}),
        (RESPONSES, {"input": [{"id": "msg_1", "type": None}]}),
        (RESPONSES, {"input": [{"type": "image_generation_call", "id": "ig_1"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}),
        (RESPONSES, {"background": 1}),
        (ANTHROPIC, {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]}),
        (ANTHROPIC, {"messages": [{"content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]}),
        (ANTHROPIC, {"container": ""}),
    ],
)
def test_what_the_provider_keeps_or_would_fetch_is_refused_in_a_message_too(protocol, fields):
    with pytest.raises(BadRequest):
        send(protocol, **fields)


def test_what_clients_send_for_nothing_passes():
    for protocol in WireProtocol:
        nothing = {"background": False, "conversation": None, "mcp_servers": [], "plugins": [], "tools": []}
        assert send(protocol, **nothing)["tools"] == []
    image = {"type": "input_image", "image_url": PIXEL, "file_id": None}
    call = {"type": "function_call_output", "call_id": "c", "output": "o", "id": "fc_1"}
    assert send(RESPONSES, input=[{"role": "user", "content": [image]}, call])["input"][1] == call
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": "JVBERi0xLjQK"}}
    assert send(CHAT, messages=[{"role": "user", "content": [pdf]}])
    schema = {"type": "object", "properties": {"file_id": {"type": "string"}, "imageUrl": {"type": ["string", "null"]}}}
    assert send(CHAT, tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])


def test_the_provider_gets_what_was_checked_with_half_characters_replaced():
    body = raw('{"messages": [{"content": "\\ud83d cut, \\ud83d\\ude00 whole, \\u00e9", "n": 1.0}]}').body
    assert json.loads(body)["messages"] == [{"content": "\ufffd cut, \U0001f600 whole, é", "n": 1.0}]


@pytest.mark.parametrize(
    "text",
    ['{"a": 1', '{"a": NaN}', '{"a": 1e999}', "[1]", '{"a": ' + "[" * 100_000, b'{"a": "\xff"}', '{"a": "\n"}',
     '{"a":1}'.encode("utf-16"), '\ufeff{"a": 1}', '{"a": ' + "9" * 10_000 + "}"],
)  # fmt: skip
def test_a_body_that_two_readers_could_read_differently_is_refused(text):
    with pytest.raises(BadRequest):
        raw(text)


@pytest.mark.parametrize("piece", ["{}", "[]", '{"a":1}', "1"])
def test_many_small_values_are_refused_before_they_take_memory(piece):
    import tracemalloc

    body = b'{"messages": [' + b",".join([piece.encode()] * (2**23 // (len(piece) + 1))) + b"]}"
    tracemalloc.start()
    with pytest.raises(BadRequest, match="values"):
        raw(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(body)


def test_a_long_text_full_of_brackets_passes():
    text = json.dumps({"messages": [{"role": "user", "content": '{"a": [1, 2, {}]}, ' * 200_000}]})
    assert json.loads(raw(text).body)["messages"] == json.loads(text)["messages"]
