"""Chats in data files: every layout that people have, what is asked, what is right, and what is refused."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.chats import read_chat, read_tools
from agent2.errors import ConfigError
from agent2.evaluation.check import check_benchmark
from agent2.evaluation.engine import score_messages
from agent2.records import Split
from plugin_builders import write_rows

TOOLS_CHAT = """\
name: desk_calls
version: "1"
files: {dev: rows.jsonl}
chat: {messages: messages, tools: tools}
scorer: chat_calls
"""
WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
}
CALL = {"name": "weather", "arguments": {"city": "Paris"}}
OPENAI_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}],
}
ASK = {"role": "user", "content": "Weather in Paris?"}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def load(folder, rows, text=TOOLS_CHAT):
    (folder / "benchmark.yaml").write_text(text)
    write_rows(folder / "rows.jsonl", rows)
    return load_benchmark(str(folder))


def items_of(benchmark):
    return benchmark.items(Split.DEV, benchmark.count(Split.DEV, None), None)


def refusal(folder, rows, text=TOOLS_CHAT):
    with pytest.raises(ConfigError) as refused:
        items_of(load(folder, rows, text))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def score(benchmark, item, answer):
    verdict = score_messages(benchmark, item, [answer])
    return verdict.value, verdict.labels


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([ASK, OPENAI_CALL], [{"type": "function", "function": WEATHER}]),
        (json.dumps([ASK, OPENAI_CALL]), json.dumps([WEATHER])),
        (
            [
                {"from": "human", "value": "Weather in Paris?"},
                {"from": "function_call", "value": json.dumps(CALL)},
                {"from": "observation", "value": "rain"},
            ],
            [WEATHER],
        ),
        ([ASK, {"role": "assistant", "content": f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"}], [WEATHER]),
        ([ASK, {"role": "assistant", "content": "", "function_call": CALL}], WEATHER),
        ([[ASK, {"role": "assistant", "tool_calls": [CALL], "content": None}]], [WEATHER]),
    ],
)
def test_each_layout_of_a_chat_asks_the_same_and_its_call_is_right(tmp_path, messages, tools):
    benchmark = load(tmp_path, [{"messages": messages, "tools": tools}])
    (item,) = items_of(benchmark)
    assert item.prompt == "Weather in Paris?" and json.loads(item.reference) == CALL
    system, user = benchmark.environment().reset(item, 0)
    assert system.role == "system" and system.text.startswith("You may call functions.") and '"weather"' in system.text
    assert (user.role, user.text) == ("user", "Weather in Paris?")
    assert score(benchmark, item, item.reference) == (1.0, ())


@pytest.mark.parametrize(
    ("answer", "value", "labels"),
    [
        ('{"name": "weather", "arguments": {"city": "Paris"}}', 1.0, ()),
        ('[{"name": "weather", "parameters": {"city": " Paris ", "days": 1.0}}]', 1.0, ()),
        ('Sure.\n```json\n{"name": "weather", "arguments": {"city": "Paris", "days": null}}\n```', 1.0, ()),
        ('<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}', 1.0, ()),
        ('[TOOL_CALLS] [{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}]', 1.0, ()),
        ('{"name": "weather", "arguments": {"city": "Lyon"}}', 0.0, ("wrong_arguments",)),
        ('{"name": "weather", "arguments": {"city": "Paris", "days": 2}}', 0.0, ("wrong_arguments",)),
        ('{"name": "news", "arguments": {"city": "Paris"}}', 0.0, ("wrong_function",)),
        (
            '{"name": "weather", "arguments": {"city": "Paris"}}\n{"name": "weather", "arguments": {"city": "Rome"}}',
            0.0,
            ("extra_call",),
        ),
        ('{"name": "weather", "arguments": {"city": "Par', 0.0, ("malformed_call",)),
        ('<tool_call>{"name": "weather"', 0.0, ("malformed_call",)),
        ('{"name": "weather", "arguments": {"days": NaN}}', 0.0, ("malformed_call",)),
        ("It rains in Paris.", 0.0, ("no_call",)),
        ("", 0.0, ("no_call",)),
        ("[1] It rains.", 0.0, ("no_call",)),
    ],
)
def test_calls_are_read_in_every_form_and_compared_by_value(tmp_path, answer, value, labels):
    benchmark = load(tmp_path, [{"messages": [ASK, OPENAI_CALL], "tools": [WEATHER]}])
    assert score(benchmark, items_of(benchmark)[0], answer) == (value, labels)


def test_where_words_are_right_a_call_and_silence_are_wrong(tmp_path):
    rows = [{"messages": [ASK, {"role": "assistant", "content": "Which Paris?"}], "tools": [WEATHER]}]
    benchmark = load(tmp_path, rows)
    (item,) = items_of(benchmark)
    assert score(benchmark, item, "In France or in Texas?") == (1.0, ())
    assert score(benchmark, item, json.dumps(CALL)) == (0.0, ("called_without_need",))
    assert score(benchmark, item, " ") == (0.0, ("no_answer",))


def test_earlier_calls_and_their_results_are_shown_and_two_results_are_one_message(tmp_path):
    calls = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "arguments": {"city": "Rome"}}]}
    messages = [
        {"role": "system", "content": "Be brief."},
        ASK,
        calls,
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "tool", "content": '{"sky": "clear"}', "tool_call_id": "c2"},
        {"role": "assistant", "content": "Rain, and clear."},
    ]
    benchmark = load(tmp_path, [{"messages": messages, "tools": [WEATHER]}])
    (item,) = items_of(benchmark)
    shown = benchmark.environment().reset(item, 0)
    assert [message.role for message in shown] == ["system", "user", "assistant", "user"]
    assert shown[0].text.startswith("Be brief.\n\nYou may call functions.")
    assert json.loads(shown[2].text)[1] == {"name": "weather", "arguments": {"city": "Rome"}}
    assert json.loads(shown[3].text) == ["rain", '{"sky": "clear"}'] and item.reference == "Rain, and clear."
    last_call = TOOLS_CHAT.replace("tools: tools}", "tools: tools, ask: last_call}")
    benchmark = load(tmp_path, [{"messages": messages, "tools": [WEATHER]}], last_call)
    assert json.loads(items_of(benchmark)[0].reference)[0] == CALL


def test_a_chat_without_tools_is_scored_by_its_words_and_takes_a_system_message(tmp_path):
    text = 'name: talk\nversion: "1"\nfiles: {dev: rows.jsonl}\nchat: messages\nsystem: Be kind.\nscorer: exact\n'
    rows = [{"messages": [ASK, {"role": "assistant", "content": "rain"}]}]
    benchmark = load(tmp_path, rows, text)
    (item,) = items_of(benchmark)
    assert [message.text for message in benchmark.environment().reset(item, 0)] == ["Be kind.", "Weather in Paris?"]
    assert score(benchmark, item, "rain")[0] == 1.0 and score(benchmark, item, "sun")[0] == 0.0


@pytest.mark.parametrize("answers", [[CALL], json.dumps([CALL]), CALL])
def test_the_calls_may_be_in_a_field_of_their_own_and_the_chat_a_text(tmp_path, answers):
    text = TOOLS_CHAT.replace("messages: messages", "messages: query") + "answer: answers\n"
    benchmark = load(
        tmp_path, [{"query": "Weather in Paris?", "tools": json.dumps([WEATHER]), "answers": answers}], text
    )
    (item,) = items_of(benchmark)
    assert item.payload["reference_calls"] == [CALL] and score(benchmark, item, item.reference) == (1.0, ())


def test_parquet_fills_absent_fields_with_null_which_changes_nothing(tmp_path):
    other = {"name": "time", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
    rows = [
        {"messages": [ASK, {"role": "assistant", "tool_calls": [CALL]}], "tools": [WEATHER, other]},
        {
            "messages": [
                {"role": "user", "content": "Time?"},
                {"role": "assistant", "tool_calls": [{"name": "time", "arguments": {"zone": "CET"}}]},
            ],
            "tools": [other],
        },
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "benchmark.yaml").write_text(TOOLS_CHAT.replace("jsonl", "parquet"))
    benchmark = load_benchmark(str(tmp_path))
    by_prompt = {item.prompt: item for item in items_of(benchmark)}
    assert score(benchmark, by_prompt["Weather in Paris?"], json.dumps(CALL)) == (1.0, ())
    assert "null" not in benchmark.environment().reset(by_prompt["Time?"], 0)[0].text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": None}, "chat field 'messages' is not a list of messages in 1 of 1 rows"),
        ({"messages": "[broken"}, "is not a list of messages"),
        ({"messages": []}, "is not a list of messages"),
        ({"messages": ["hello"]}, "is not a list of messages"),
        (
            {"messages": [{"role": "narrator", "content": "x"}, OPENAI_CALL]},
            "the role 'narrator'; known are human, user",
        ),
        ({"messages": [OPENAI_CALL]}, "begins with the message that is asked for"),
        (
            {"messages": [{"role": "system", "content": "x"}, OPENAI_CALL]},
            "has no message of the user before the one that is asked for",
        ),
        ({"messages": [ASK]}, "ends with the user in 1 of 1 rows"),
        ({"messages": [ASK, {"role": "assistant", "content": ""}]}, "asks for an empty message"),
        (
            {"messages": [ASK, {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": "city=Paris"}]}]},
            "has a call that cannot be read",
        ),
        (
            {"messages": [ASK, {"role": "assistant", "content": "<tool_call>weather(Paris)</tool_call>"}]},
            "has a call that cannot be read",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:x"}]}, OPENAI_CALL]},
            "has content that is not text",
        ),
        ({"tools": "weather"}, "tools field 'tools' is not a list of functions in 1 of 1 rows"),
        ({"tools": [{"type": "function"}]}, "is not a list of functions with a 'name'"),
        ({"tools": []}, "the answer calls 'weather', which tools field 'tools' does not offer"),
    ],
)
def test_a_chat_that_cannot_be_asked_is_refused_with_its_line(tmp_path, row, message):
    assert message in refusal(tmp_path, [{"messages": [ASK, OPENAI_CALL], "tools": [WEATHER]} | row])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("chat: {", 'prompt: "{question}"\nchat: {', "name either 'prompt' or 'chat'"),
        ("chat: {messages: messages, tools: tools}\n", "", "name either 'prompt' or 'chat'"),
        ("scorer", "options: choices\nscorer", "'chat' is asked as it is: leave out 'options'"),
        ("scorer", "few_shot: 3\nscorer", "'chat' is asked as it is: leave out 'options', 'few_shot'"),
        ("messages: messages", "messages: mesages", "unknown field 'mesages'; did you mean 'messages'?"),
        ("tools: tools", "tools: tols", "unknown field 'tols'; did you mean 'tools'?"),
        (", tools: tools", "", "chat_calls compares calls, and the item has no functions; name their field"),
    ],
)
def test_a_file_that_asks_for_something_else_than_a_chat_is_refused(tmp_path, old, new, message):
    rows = [{"messages": [ASK, OPENAI_CALL], "tools": [WEATHER]}]
    assert message in refusal(tmp_path, rows, TOOLS_CHAT.replace(old, new, 1))


def test_a_set_of_tool_chats_passes_its_check(tmp_path):
    cities = [f"{first}{second}" for first in ("Paris", "Rome", "Oslo", "Bern") for second in range(100)]
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Weather in {city}?"},
                {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": {"city": city}}]},
            ],
            "tools": [WEATHER],
        }
        for city in cities
    ]
    check = check_benchmark(load(tmp_path, rows, TOOLS_CHAT.replace("dev:", "all:")))
    assert check.is_sound and sum(check.counts.values()) == 400


def test_a_chat_is_read_up_to_the_asked_message_and_shown_whole_where_the_answer_is_elsewhere():
    chat = [ASK, {"role": "assistant", "content": "rain"}, {"role": "user", "content": "thanks"}]
    assert read_chat(chat).answer == "rain" and len(read_chat(chat).messages) == 1
    whole = read_chat(chat, is_answered=True)
    assert whole.answer is None and whole.text.endswith("user: thanks")
    assert read_tools(None) == read_tools("") == read_tools("[]") == []
