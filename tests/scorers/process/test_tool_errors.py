import pytest

from agent2.scorers.grounding.episodes import RecordedCall
from agent2.scorers.process.statistics import process_of
from agent2.scorers.process.tool_errors import class_of_text, error_class
from process_builders import call, make_worked

TEXTS = [
    ("Error: Request timed out after 30 seconds", "timeout"),
    ("TimeoutError: the command took longer than 60 s", "timeout"),
    ("bash: ./run.sh: Permission denied", "permission_denied"),
    ("HTTP 403 Forbidden", "permission_denied"),
    ("error: permission: ...", "permission_denied"),
    ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "malformed_call"),
    ("Failed to parse the arguments of the call", "malformed_call"),
    ("Tool 'serch' not found", "unknown_tool"),
    ("Unknown action lookup", "unknown_tool"),
    ("bash: rg: command not found", "unknown_tool"),
    ("1 validation error for Query: field required", "schema_error"),
    ("get_user() got an unexpected keyword argument 'name'", "schema_error"),
    ("Missing required parameter: user_id", "schema_error"),
    ("'5' is not of type 'integer'", "schema_error"),
    ("429 Too Many Requests", "rate_limit"),
    ("ConnectionError: connection refused", "unreachable"),
    ("503 Service Unavailable", "unreachable"),
    ("the server answered with status 404", "not_found"),
    ("Error: payment method not found", "not_found"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'a.py'", "not_found"),
    ("error: output_limit: The tool output limit of 10 MiB was exceeded.", "output_limit"),
    ("Error: gift card balance is not enough", "tool"),
    ("Error: flight HAT001 not available on date 2024-05-20", "tool"),
    ("Error: payment amount does not add up, total price is 400, but paid 403", "tool"),
    ("Error: not enough seats on flight HAT403", "tool"),
    ("error: ", "tool"),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_the_text_of_an_error_says_its_class(text, expected):
    assert class_of_text(text) == expected


def test_a_stated_class_stands_whatever_the_text_says():
    assert error_class(RecordedCall(0, "search", {}, None, "tool", "the search for 'timeout' found nothing")) == "tool"
    assert error_class(RecordedCall(0, "search", {}, "ok", None)) is None


def test_a_long_text_is_read_in_no_time_and_only_at_its_start():
    assert class_of_text("missing " * 200_000) == "tool"
    assert class_of_text("x" * 100_000 + " permission denied") == "tool"


def test_errors_of_an_imported_log_are_told_apart_and_an_empty_result_is_none_of_them():
    told = process_of(
        make_worked(
            "a",
            [
                {**call("open", error="Error", page="1"), "detail": "Error: the page was not found"},
                {**call("open", error="Error", page="2"), "detail": "Error: permission denied"},
                {**call("opn", error="Error", page="3"), "detail": "Error: unknown tool opn"},
                call("search", result=[], query="x"),
            ],
        ).rollout
    )
    assert told.errors == {"not_found": 1, "permission_denied": 1, "unknown_tool": 1}
    assert told.empty_results == 1 and told.failing_calls == 3
    assert told.wasted_actions == 1, "an unknown tool could never have worked; a denial might have"
