import json

import pytest
from pydantic import SecretStr

from agent2.llm.gateway.requests import BadRequest, prepare
from agent2.llm.gateway.routes import RequestKind, WireRoute, find_route, upstream_url
from agent2.llm.records import ProviderEndpoint, WireProtocol

GEMINI = "/v1beta/models/gemini-x:streamGenerateContent"


@pytest.mark.parametrize(
    ("base", "path", "query", "url"),
    [
        ("https://a.com/v1", "/v1/chat/completions", {}, "https://a.com/v1/chat/completions"),
        ("https://a.com", "/v1/responses", {}, "https://a.com/v1/responses"),
        ("https://a.com/api/v9/", "/v1/responses", {}, "https://a.com/api/v9/responses"),
        ("https://a.com", "/v1/messages", {"beta": "true", "key": "k"}, "https://a.com/v1/messages?beta=true"),
        ("https://a.com/api", "/v1/messages/count_tokens", {}, "https://a.com/api/v1/messages/count_tokens"),
        (
            "https://a.com",
            GEMINI,
            {"alt": "sse", "key": "k"},
            "https://a.com/v1beta/models/o/m:streamGenerateContent?alt=sse",
        ),
        ("https://a.com", "/v1/models/g:countTokens", {}, "https://a.com/v1/models/o/m:countTokens"),
        ("https://a.com", "/v1alpha/models/org/g:countTokens", {}, "https://a.com/v1alpha/models/o/m:countTokens"),
    ],
)
def test_a_request_goes_to_the_same_place_at_the_provider(base, path, query, url):
    route = find_route("POST", path, {})
    endpoint = ProviderEndpoint(protocol=route.protocol, base_url=base, api_key=SecretStr("k"))
    assert upstream_url(endpoint, route, "o/m", query) == url


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/../files"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1beta/models/a//b:generateContent"),
        ("POST", "/v1beta/models/:generateContent"),
        ("POST", "/v1beta/models/a:embedContent"),
        ("POST", "/v1beta/models/..:generateContent"),
        ("POST", "/v1beta/models/../../v1/files/a:generateContent"),
        ("POST", "/v1beta/models/a/../b:streamGenerateContent"),
        ("POST", "/v1beta/models/./a:countTokens"),
        ("GET", "/v1beta/models/../files"),
        ("GET", "/v1/models/a/.."),
        ("POST", "/v1/messages/batches"),
        ("DELETE", "/v1/models"),
    ],
)
def test_other_paths_are_no_routes(method, path):
    assert find_route(method, path, {}) is None


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/org/model",
        "/v1beta/models/org/model",
        "/v1/models/org/model:free",
        "/v1beta/models/gemini-2.5-pro",
        "/v1/models/.hidden/a..b",
    ],
)
def test_a_models_name_may_have_an_organisation_in_it(path):
    route = find_route("GET", path, {})
    assert route is not None and route.kind is RequestKind.MODELS


@pytest.mark.parametrize(
    ("path", "fields", "limit"),
    [
        ("/v1/chat/completions", {"max_tokens": 5}, 5),
        ("/v1/chat/completions", {"max_tokens": 5, "max_completion_tokens": 7, "n": 3}, 21),
        ("/v1/chat/completions", {"max_tokens": True, "n": "x"}, None),
        ("/v1/responses", {"max_output_tokens": 9}, 9),
        ("/v1/messages", {"max_tokens": 11}, 11),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 13, "candidateCount": 2}}, 26),
        (GEMINI, {}, None),
        ("/v1/chat/completions", {"max_completion_tokens": 1, "max_tokens": 9000}, 9000),
        ("/v1/responses", {"max_output_tokens": "9000"}, 9000),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 1}, "generation_config": {"max_output_tokens": 2e4}}, 20000),
    ],
)
def test_the_output_limit_of_a_request_is_read(path, fields, limit):
    route = find_route("POST", path, {})
    assert prepare(json.dumps(fields).encode(), route, "m").output_tokens == limit


def test_a_request_for_many_answers_without_a_limit_says_how_many():
    prepared = prepare(b'{"n": 50}', WireRoute(WireProtocol.OPENAI_CHAT, RequestKind.GENERATE), "m")
    assert (prepared.output_tokens, prepared.alternatives) == (None, 50)


def test_the_values_of_a_request_are_sent_as_they_were_and_in_their_order():
    body = b'{"messages":[ {"b" : 1e-7, "content":"\\u00e9", "a": [1.0, 12345678901234567890]} ], "model": "x"}'
    sent = prepare(body, WireRoute(WireProtocol.OPENAI_CHAT, RequestKind.GENERATE), "m").body
    assert '{"b":1e-07,"content":"é","a":[1.0,12345678901234567890]}'.encode() in sent
    assert json.loads(sent)["model"] == "m"


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "name": "web_search"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "local_shell"},
        {"type": "bash_20250124", "name": "bash"},
        {"name": "Bash", "input_schema": {}},
    ],
)
def test_tools_that_the_agent_runs_itself_are_allowed(tool):
    for protocol in (WireProtocol.OPENAI_RESPONSES, WireProtocol.ANTHROPIC):
        prepare(json.dumps({"tools": [tool]}).encode(), WireRoute(protocol, RequestKind.GENERATE), "m")


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "mcp", "code_interpreter", "file_search"])
def test_tools_that_the_provider_would_run_are_refused(kind):
    with pytest.raises(BadRequest, match=kind):
        prepare(
            json.dumps({"tools": [{"type": kind}]}).encode(),
            WireRoute(WireProtocol.OPENAI_RESPONSES, RequestKind.GENERATE),
            "m",
        )
