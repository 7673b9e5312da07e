import json
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent2.benchmarks import load_benchmark
from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError, EndpointFailed, Fault, SamplerFailed
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.llm.endpoints import Endpoint, EndpointClient, public_url, read_endpoint_options
from agent2.llm.served import ServedSampler
from agent2.llm.wire_problems import WireProblem
from agent2.models.hf import HfSampler
from agent2.records import Item, Message, SamplingSettings, Score, Split, StopReason
from model_builders import make_model
from served_fakes import Reply, chat, endpoint, error, transformers_serve

FAST = {"first_wait_s": 0.01, "timeout_s": 60.0}


def opened(url, **changes):
    return ServedSampler(Endpoint(url, "m", **{**FAST, **changes}))


def impatient(url, timeout_s, **changes):
    """A sampler that opens in its own time, and waits no longer than that for an answer."""
    sampler = opened(url, **changes)
    sampler._client.endpoint = replace(sampler._client.endpoint, timeout_s=timeout_s)
    return sampler


def ask(sampler, *texts, settings=None):
    """Completions of one message each, in the order of the questions."""
    for number, text in enumerate(texts):
        sampler.submit(number, [Message("user", text)], settings or SamplingSettings(max_tokens=8))
    done = {}
    while len(done) < len(texts):
        done.update(sampler.collect())
    return [done[number] for number in range(len(texts))]


def n_requests(served, at_least):
    """How many it was asked; one that has timed out may still be on its way to the server's thread."""
    ends_at = time.monotonic() + 120
    while len(served.bodies) < at_least and time.monotonic() < ends_at:
        time.sleep(0.02)
    return len(served.bodies)


def after_probe(*replies):
    """Good at first, then the replies in turn, the last one for ever."""
    return lambda body, number: chat("hello") if number == 0 else replies[min(number, len(replies)) - 1]


def echo(body, number):
    return chat(body["messages"][-1]["content"].upper(), usage={"prompt_tokens": 3, "completion_tokens": 1})


def test_every_request_gets_its_own_answer_with_many_in_flight():
    eight = threading.Barrier(8, timeout=120)  # nobody is answered before eight have asked

    def reply(body, number):
        if number > 0:  # after the probe
            eight.wait()
        return echo(body, number)

    with endpoint(reply) as served:
        sampler = opened(served.url, max_in_flight=8)
        texts = [f"q{n}" for n in range(32)]
        answers = ask(sampler, *texts)
        sampler.close()
    assert [answer.text for answer in answers] == [text.upper() for text in texts]
    assert {(answer.prompt_tokens, answer.n_tokens) for answer in answers} == {(3, 1)}
    assert served.most_at_once == 8


def test_collect_returns_nothing_when_nothing_is_in_flight():
    with endpoint(echo) as served:
        assert opened(served.url).collect() == []


@pytest.mark.parametrize(
    "bad",
    [
        error(429, Retry_After="0"),
        error(503),
        error(500),
        Reply(b"<html>"),
        replace(chat("never seen whole"), cut_after=10),
        Reply(b"", cut_after=0),
    ],
)
def test_a_state_that_passes_is_tried_again(bad):
    with endpoint(after_probe(bad, bad, chat("late"))) as served:
        (answer,) = ask(opened(served.url), "q")
    assert (answer.text, answer.stop_reason, len(served.bodies)) == ("late", StopReason.END, 4)


@pytest.mark.parametrize("bad", [error(503, "overloaded"), Reply(b"{}"), replace(chat("torn"), cut_after=20)])
def test_a_state_that_stays_is_an_infrastructure_fault_and_no_answer(bad):
    with endpoint(after_probe(bad)) as served:
        (answer,) = ask(opened(served.url, max_tries=3), "q")
    assert (answer.stop_reason, answer.fault, answer.text) == (StopReason.FAULT, Fault.INFRASTRUCTURE, "")
    assert "after 3 tries" in answer.reason
    assert len(served.bodies) == 4


def test_a_refusal_is_not_tried_again():
    with endpoint(after_probe(error(400, "bad field"))) as served:
        (answer,) = ask(opened(served.url), "q")
    assert answer.fault is Fault.INFRASTRUCTURE and "bad field" in answer.reason
    assert len(served.bodies) == 2


def test_the_server_says_how_long_to_wait():
    with endpoint(after_probe(error(429, Retry_After="0.4"), chat("late"))) as served:
        sampler = opened(served.url)
        started = time.monotonic()
        (answer,) = ask(sampler, "q")
    assert answer.text == "late"
    assert time.monotonic() - started >= 0.4


def test_a_server_that_asks_to_wait_too_long_is_given_up():
    with endpoint(after_probe(error(429, Retry_After="3600"))) as served:
        (answer,) = ask(opened(served.url), "q")
    assert answer.fault is Fault.INFRASTRUCTURE
    assert "asks to wait 3600 s" in answer.reason


def test_a_silent_server_is_a_fault_after_the_time_limit():
    with endpoint(after_probe(replace(chat("late"), delay_s=60.0))) as served:
        (answer,) = ask(impatient(served.url, 2.0, max_tries=1), "q")
    assert answer.fault is Fault.INFRASTRUCTURE and "no whole answer within 2 s (ReadTimeout" in answer.reason


def test_opening_says_what_is_wrong_with_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # held, so that nobody else can listen there
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with pytest.raises(EndpointFailed, match=r"#m: no connection: ConnectError.*check that the server runs"):
            opened(url, max_tries=1)


def test_opening_says_what_the_server_refuses():
    with (
        endpoint(lambda body, number: error(404, "no model m")) as served,
        pytest.raises(ConfigError, match="HTTP 404: 'no model m'"),
    ):
        opened(served.url)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "127.0.0.1:8000/v1"}, "write http://"),
        ({"model": ""}, "URL#MODEL"),
        ({"url": "http://a:b@127.0.0.1:99999/v1"}, "address of an endpoint: Port out of range 0-65535; write"),
        ({"url": "http://[::1/v1"}, "address of an endpoint: Invalid IPv6 URL"),
        ({"max_in_flight": 0}, "at least 1"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ServedSampler(Endpoint(**{"url": "http://127.0.0.1:1/v1", "model": "m", **settings}))


def test_a_server_that_knows_only_the_newer_fields_is_understood():
    def reply(body, number):
        return error(400, "unsupported") if "max_tokens" in body or "logprobs" in body else chat("ok")

    with endpoint(reply) as served:
        sampler = opened(served.url)
        assert ask(sampler, "q")[0].text == "ok"
    assert served.bodies[-1]["max_completion_tokens"] == 8
    assert sampler.describe()["limit_name"] == "max_completion_tokens"


def test_the_key_goes_to_the_endpoint_and_nowhere_else(monkeypatch):
    monkeypatch.setenv("AGENT2_API_KEY", "secret-key")
    monkeypatch.setenv("OPENAI_API_KEY", "another-key")
    with endpoint(echo) as served:
        sampler = opened(served.url)
        ask(sampler, "q")
    assert served.keys[-1] == "Bearer secret-key"
    assert "secret-key" not in str(sampler.describe())


def test_credentials_in_an_address_are_refused_without_showing_them():
    with pytest.raises(ConfigError, match="AGENT2_API_KEY") as raised:
        opened("http://user:password@127.0.0.1:1/v1")
    assert "password@" not in str(raised.value)


def test_without_a_key_none_is_sent(monkeypatch):
    monkeypatch.delenv("AGENT2_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "another-key")
    with endpoint(echo) as served:
        ask(opened(served.url), "q")
    assert set(served.keys) == {None}


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv("AGENT2_API_KEY", "secret\nkey")
    with pytest.raises(ConfigError) as raised:
        opened("http://127.0.0.1:1/v1")
    assert "secret" not in str(raised.value)


def test_addresses_are_shown_without_credentials_and_query():
    assert public_url("https://u:p@[::1]:80/v1?key=x#m") == "https://[::1]:80/v1"


def test_a_closed_sampler_takes_nothing_and_does_not_wait_for_a_slow_server():
    with endpoint(after_probe(replace(chat("late"), delay_s=600.0))) as served:
        sampler = opened(served.url)
        sampler.submit(1, [Message("user", "q")], SamplingSettings())
        started = time.monotonic()
        sampler.close()
        sampler.close()
        assert time.monotonic() - started < 300
        with pytest.raises(SamplerFailed, match="closed"):
            sampler.submit(2, [Message("user", "q")], SamplingSettings())


def test_a_server_that_never_answers_does_not_hold_the_exit_of_the_program_up():
    program = """
import sys
from agent2.llm.endpoints import Endpoint
from agent2.llm.served import ServedSampler
from agent2.records import Message, SamplingSettings
sampler = ServedSampler(Endpoint(sys.argv[1], "m"))
sampler.submit(1, [Message("user", "q")], SamplingSettings())
if sys.argv[2] == "close":
    sampler.close()
"""
    for how in ("close", "forget"):
        with endpoint(after_probe(replace(chat("late"), delay_s=600.0))) as served:
            subprocess.run([sys.executable, "-c", program, served.url, how], timeout=240, check=True)


def test_ids_in_flight_and_token_ids_are_refused():
    with endpoint(echo) as served:
        sampler = opened(served.url)
        sampler.submit(1, [Message("user", "q")], SamplingSettings())
        with pytest.raises(SamplerFailed, match="in flight already"):
            sampler.submit(1, [Message("user", "q")], SamplingSettings())
        with pytest.raises(SamplerFailed, match="not token ids"):
            sampler.submit(2, [1, 2], SamplingSettings())


class Exact:
    name, version = "exact", "1"

    def score(self, item, rollout):
        return Score(float(rollout.answer == item.reference), "compared")


def test_a_request_that_is_lost_is_a_missing_score_and_never_a_zero():
    items = [Item(f"i{n}", Split.DEV, f"q{n}", f"Q{n}") for n in range(20)]

    def reply(body, number):
        return error(503) if body["messages"][-1]["content"] in {"q3", "q7"} else echo(body, number)

    with endpoint(reply) as served:
        attempts = [Attempt(item, 0, 0) for item in items]
        settings = PlaySettings(SamplingSettings(max_tokens=4), 1)
        scored = list(play(attempts, opened(served.url, max_tries=2), QuestionEnvironment, Exact(), settings))
    values = {record.rollout.item_id: record.score.value for record in scored}
    assert values.pop("i3") is None and values.pop("i7") is None
    assert set(values.values()) == {1.0} and len(values) == 18
    lost = next(record for record in scored if record.rollout.item_id == "i3")
    assert lost.score.fault is Fault.INFRASTRUCTURE and "HTTP 503" in lost.score.reason
    assert sum(record.rollout.usage.completion_tokens for record in scored) == 18


@pytest.mark.slow
def test_a_real_server_gives_what_the_model_gives_in_process(tmp_path):
    model = make_model(tmp_path / "model", steps=200)
    texts = [f"{a} + {b}" for a in range(6) for b in range(5)]
    sampler = HfSampler(model)
    expected = ask(sampler, *texts)
    sampler.close()
    with transformers_serve(model, tmp_path) as url:
        served = ServedSampler(Endpoint(url, str(model), max_in_flight=4))
        completions = ask(served, *texts)
        sampled = ask(served, *texts[:8], settings=SamplingSettings(temperature=1.0, max_tokens=4, seed=1))
        served.close()
    assert [completion.text for completion in completions] == [completion.text for completion in expected]
    assert [completion.prompt_tokens for completion in completions] == [
        completion.prompt_tokens for completion in expected
    ]
    assert [completion.n_tokens for completion in completions] == [len(completion.token_ids) for completion in expected]
    assert all(completion.fault is None for completion in sampled)
    assert served.describe()["server"] == "uvicorn"


def test_an_answer_that_trickles_in_is_late_too():
    """Each piece comes in time, the whole does not."""
    with endpoint(after_probe(replace(chat("x" * 400), piece_s=0.3))) as served:
        (answer,) = ask(impatient(served.url, 1.0), "q")
        assert n_requests(served, 2) == 2
    assert answer.fault is Fault.INFRASTRUCTURE and "no whole answer within 1 s" in answer.reason


def test_a_request_that_timed_out_is_not_tried_again():
    with endpoint(after_probe(replace(chat("late"), delay_s=60.0))) as served:
        ask(impatient(served.url, 0.5, max_tries=4), "q")
        assert n_requests(served, 2) == 2


def test_an_endpoint_that_hangs_is_gone_after_a_few_requests():
    with endpoint(after_probe(replace(chat("late"), delay_s=600.0))) as served:
        sampler = impatient(served.url, 0.5, max_in_flight=2)
        with pytest.raises(EndpointFailed, match=r"3 requests in a row got no answer.*timeout_s=SECONDS"):
            ask(sampler, *"abcdefgh")
        with pytest.raises(EndpointFailed):  # and not waited for without end
            sampler.collect()
        sent = [body["messages"][-1]["content"] for body in served.bodies[1:]]
        assert len(sent) <= 4, sent  # three, and the one that was under way beside the third
        with pytest.raises(EndpointFailed):
            sampler.submit(99, [Message("user", "q")], SamplingSettings())


def test_an_endpoint_that_went_away_is_gone_after_a_few_requests():
    with endpoint(echo) as served:
        sampler = opened(served.url, max_in_flight=2, max_tries=2)
    with pytest.raises(EndpointFailed, match="3 requests in a row got no answer"):
        ask(sampler, *"abcdefgh")


def test_some_slow_requests_among_others_do_not_end_the_evaluation(monkeypatch):
    def reply(body, number):
        if body["messages"][-1]["content"] == "slow":
            return replace(chat("ok"), delay_s=600.0)
        return chat("ok")

    with endpoint(reply) as served:
        sampler = opened(served.url, max_in_flight=8)
        monkeypatch.setattr(sampler._client, "limit_s", lambda max_tokens: 0.5 if max_tokens == 1 else 120.0)
        # its clock stands: however slow this machine is, another request was answered just before
        monkeypatch.setattr("agent2.llm.served.time", SimpleNamespace(monotonic=lambda: sampler._answered_at))
        for number in range(64):
            is_slow = number < 4
            settings = SamplingSettings(max_tokens=1 if is_slow else 8)
            sampler.submit(number, [Message("user", "slow" if is_slow else "q")], settings)
        done = {}
        while len(done) < 64:
            done.update(sampler.collect())
    assert [done[number].fault for number in range(64)] == [Fault.INFRASTRUCTURE] * 4 + [None] * 60


def test_the_time_for_an_answer_grows_with_its_length():
    client = EndpointClient(Endpoint("http://127.0.0.1:1/v1", "m"))
    assert [client.limit_s(n) for n in (1, 4096)] == [60.1, pytest.approx(469.6)]


def test_a_request_after_the_client_was_closed_is_a_problem_in_words():
    client = EndpointClient(Endpoint("http://127.0.0.1:1/v1", "m"))
    client.close()
    problem = client.exchange("chat/completions", {}, 1.0, lambda *answer: answer)
    assert isinstance(problem, WireProblem)
    assert problem.reason == "the sampler was closed"


def test_opening_an_endpoint_that_hangs_does_not_try_again():
    with endpoint(lambda body, number: replace(chat("late"), delay_s=600.0)) as served:
        with pytest.raises(EndpointFailed, match=r"no whole answer within 0\.5 s"):
            opened(served.url, timeout_s=0.5)
        assert n_requests(served, 1) == 1


def test_extra_fields_are_sent_and_ours_stay():
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 5}
    with endpoint(echo) as served:
        sampler = opened(served.url, extra_body=extra)
        ask(sampler, "q")
    assert all(
        body["top_k"] == 5 and body["chat_template_kwargs"] == {"enable_thinking": False} for body in served.bodies
    )
    assert served.bodies[-1]["max_tokens"] == 8
    assert sampler.describe()["extra_body"] == extra


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("concurency=3", "--endpoint concurency=3: unknown key 'concurency'; did you mean 'concurrency'"),
        ("timeout_s=0", "--endpoint timeout_s=0: timeout_s"),
        ("timeout_s", "--endpoint 'timeout_s': write it as a.b=value"),
        ("extra_body.temperature=1", "temperature: set by the suite's protocol"),
    ],
)
def test_a_wrong_endpoint_option_is_named(option, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_endpoint_options([option])


def test_endpoint_options_are_read_from_words():
    options = read_endpoint_options(["timeout_s=30", "concurrency=2", "extra_body.a.b=[1, x]", "native_tools=true"])
    assert (options.timeout_s, options.concurrency, options.native_tools) == (30, 2, True)
    assert options.extra_body == {"a": {"b": [1, "x"]}}


def call(name, arguments, number="c1"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls):
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return Reply(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode())


def play_tools(reply, **changes):
    """One item of mini_apis, played in its own world."""
    benchmark = load_benchmark("mini_apis")
    (item,) = benchmark.items(Split.DEV, 1, None)
    with endpoint(reply) as served:
        sampler = opened(served.url, **changes)
        settings = PlaySettings(SamplingSettings(max_tokens=64), benchmark.max_turns)
        (scored,) = play([Attempt(item, 0, 0)], sampler, benchmark.environment, benchmark.scorer(), settings)
    return item, scored, served.bodies


def test_tools_of_a_world_are_offered_and_called_natively():
    def reply(body, number):
        if number in (0, 3):
            return chat("hello")
        tool = body["tools"][0]["function"]
        kinds = {name: kind["type"] for name, kind in tool["parameters"]["properties"].items()}
        arguments = json.dumps({name: "a" if kind == "string" else 1 for name, kind in kinds.items()})
        return calling(call(tool["name"], arguments if number == 1 else "{"))

    item, scored, (_, first, second, third) = play_tools(reply, native_tools=True)
    assert first["tools"][0]["type"] == "function" and first["messages"][0]["content"] == item.prompt
    assert scored.rollout.fault is None and scored.rollout.answer == "hello"
    taken, malformed = scored.rollout.state["tool_calls"]
    assert taken["name"] == first["tools"][0]["function"]["name"] and taken["error"] in (None, "tool")
    assert malformed["error"] == "malformed_call"
    _, assistant, result = second["messages"]
    assert assistant["tool_calls"][0]["function"]["name"] == taken["name"]
    assert (result["role"], result["tool_call_id"]) == ("tool", assistant["tool_calls"][0]["id"])
    # What could not be read is sent back as the text that it was.
    assert [message["role"] for message in third["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


def test_tools_are_not_offered_unless_asked_for():
    _, scored, bodies = play_tools(lambda body, number: chat("no"))
    assert scored.rollout.answer == "no" and not any("tools" in body for body in bodies)


def test_a_server_that_takes_no_tools_is_refused_at_once():
    def reply(body, number):
        return error(400, "enable-auto-tool-choice") if "tools" in body else chat("ok")

    with endpoint(reply) as served, pytest.raises(ConfigError, match="enable-auto-tool-choice"):
        opened(served.url, native_tools=True)


def test_a_chat_of_ones_own_data_is_sent_with_native_calls_and_results(tmp_path):
    def call_of(city):
        return {"type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}

    messages = [
        {"role": "user", "content": "Weather in Paris and Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call_of("Paris"), call_of("Rome")]},
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": '{"sky": "clear"}'},
        {"role": "assistant", "content": "Rain, and clear."},
        {"role": "user", "content": "And Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [call_of("Oslo")]},
    ]
    row = {"messages": messages, "tools": [{"name": "weather", "parameters": {"type": "object", "properties": {}}}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "benchmark.yaml").write_text(
        'name: desk\nversion: "1"\nfiles: {dev: rows.jsonl}\nscorer: chat_calls\n'
        "chat: {messages: messages, tools: tools}\n"
    )
    benchmark = load_benchmark(str(tmp_path))
    (item,) = benchmark.items(Split.DEV, 1, None)
    answer = calling({"id": "x", **call_of("Oslo")})
    with endpoint(lambda body, number: chat("hello") if number == 0 else answer) as served:
        sampler = opened(served.url, native_tools=True)
        settings = PlaySettings(SamplingSettings(max_tokens=64), 1)
        (scored,) = play([Attempt(item, 0, 0)], sampler, benchmark.environment, benchmark.scorer(), settings)
    sent = served.bodies[1]
    assert sent["tools"][0]["function"]["name"] == "weather" and scored.score.value == 1.0
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [message["content"] for message in sent["messages"][3:5]] == ["rain", '{"sky": "clear"}']


BOTH = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
ONLY_1 = (
    "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
)


def refuses(message, *fields):
    def reply(body, number):
        return error(400, message) if all(field in body for field in fields) else chat("yes")

    return reply


def test_a_field_that_is_refused_and_has_no_effect_is_left_out_from_then_on():
    with endpoint(refuses(BOTH, "temperature", "top_p")) as served:
        sampler = opened(served.url)
        settings = SamplingSettings(temperature=0.7, max_tokens=8)
        assert [done.text for done in ask(sampler, "a", "b", settings=settings)] == ["yes", "yes"]
        assert sampler.describe()["top_p_sent"] is False
        sampler.close()


@pytest.mark.parametrize(
    ("message", "settings", "how"),
    [
        (
            ONLY_1,
            {"temperature": 0.7},
            "refuses temperature as the suite sets it.*sampling.temperature=VALUE, or =unset",
        ),
        (BOTH, {"temperature": 0.7, "top_p": 0.9}, "refuses temperature and top_p.*--set protocol.sampling.top_p"),
    ],
)
def test_a_refused_setting_ends_the_evaluation_with_the_field_and_how_to_set_it(message, settings, how):
    with endpoint(refuses(message, *settings)) as served:
        sampler = opened(served.url)
        with pytest.raises(ConfigError, match=how):
            ask(sampler, "a", settings=SamplingSettings(**settings, max_tokens=8))
        sampler.close()


def test_a_server_that_refuses_both_settings_answers_where_they_are_unset():
    def reply(body, number):
        return error(400, ONLY_1) if {"temperature", "top_p"} & body.keys() else chat("yes")

    with endpoint(reply) as served:
        sampler = opened(served.url)
        unset = SamplingSettings(temperature=None, top_p=None, max_tokens=8)
        assert ask(sampler, "a", settings=unset)[0].text == "yes"
        with pytest.raises(ConfigError, match="refuses temperature"):
            ask(opened(served.url), "a", settings=SamplingSettings(temperature=0.7, max_tokens=8))
        sampler.close()


def test_a_refusal_after_an_answer_costs_one_request_and_not_the_evaluation():
    def reply(body, number):
        return error(400, ONLY_1) if "bad" in body["messages"][-1]["content"] else chat("yes")

    with endpoint(reply) as served:
        sampler = opened(served.url)
        settings = SamplingSettings(temperature=0.7, max_tokens=8)
        assert ask(sampler, "good", settings=settings)[0].text == "yes"
        assert ask(sampler, "bad", settings=settings)[0].fault is Fault.INFRASTRUCTURE
        sampler.close()


def test_an_answer_that_would_exceed_the_context_is_asked_for_with_what_room_there_is():
    def reply(body, number):
        if number and body["max_tokens"] > 28:
            used = f"{100 + body['max_tokens']} tokens (100 in the messages, {body['max_tokens']} in the completion)"
            return error(400, f"This model's maximum context length is 128 tokens. However, you requested {used}.")
        return chat(str(body["max_tokens"]), "length")

    with endpoint(reply) as served:
        sampler = opened(served.url)
        assert ask(sampler, "a", settings=SamplingSettings(max_tokens=64))[0].text == "28"
        sampler.close()
