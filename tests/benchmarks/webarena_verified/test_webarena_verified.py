"""Tasks and runs of our own, in the published layouts."""

import base64
import copy
import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts, validate_card
from agent2.errors import ConfigError
from agent2.evaluation.rescoring import rescore
from agent2.evaluation.stored_answers import StoredRequest, score_stored

SHOP = "http://shop.test:7770"
RATING = {
    "sites": ["shopping"],
    "task_id": 1,
    "start_urls": ["__SHOPPING__"],
    "intent": "When was the lamp last rated, and by whom?",
    "eval": [
        {
            "evaluator": "AgentResponseEvaluator",
            "results_schema": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"who": {"type": "string"}, "day": {"type": "string", "format": "date"}},
                },
            },
            "expected": {
                "task_type": "retrieve",
                "status": "SUCCESS",
                "retrieved_data": [{"who": "Zoë", "day": "May 3, 2023"}],
            },
        }
    ],
}
WISH = {
    "sites": ["shopping"],
    "task_id": 2,
    "start_urls": ["__SHOPPING__"],
    "intent": "Put the lamp on my wish list, without writing to anybody",
    "eval": [
        {
            "evaluator": "AgentResponseEvaluator",
            "results_schema": {"type": "null"},
            "expected": {"task_type": "mutate", "status": "SUCCESS", "retrieved_data": None},
        },
        {
            "evaluator": "NetworkEventEvaluator",
            "ignored_query_params": ["ajax"],
            "post_data_schema": {"type": "object", "properties": {"price": {"type": "number", "format": "currency"}}},
            "expected": {
                "url": "__SHOPPING__/wishlist/add/",
                "http_method": "POST",
                "headers": {"referer": "^__SHOPPING__/[a-z-]+\\.html$"},
                "post_data": {"product": "17", "price": 47.0, "$.^qty_\\d+$": None},
                "response_status": 302,
                "response_cookies": {"message": "^.*lamp.* has been added.*$"},
            },
        },
        {
            "evaluator": "NetworkEventEvaluator",
            "should_not_exist": True,
            "expected": {"url": "__SHOPPING__/contact", "http_method": "POST"},
        },
    ],
}
OPEN = {
    "sites": ["gitlab"],
    "task_id": 3,
    "start_urls": ["__GITLAB__"],
    "intent": "Open the list of my open issues",
    "eval": [
        {
            "evaluator": "AgentResponseEvaluator",
            "results_schema": {"type": "null"},
            "expected": {"task_type": "navigate", "status": "SUCCESS", "retrieved_data": None},
        },
        {
            "evaluator": "NetworkEventEvaluator",
            "expected": {"url": "__GITLAB__/issues", "query_params": {"state": ["opened"]}},
        },
    ],
}
NOTE = {
    "sites": ["gitlab"],
    "task_id": 4,
    "start_urls": ["__GITLAB__"],
    "intent": "Comment on the request",
    "eval": [
        {
            "evaluator": "AgentResponseEvaluator",
            "results_schema": {"type": "null"},
            "expected": {"task_type": "mutate", "status": "SUCCESS", "retrieved_data": None},
        },
        {
            "evaluator": "NetworkEventEvaluator",
            "last_event_only": False,
            "expected": {
                "url": ["__GITLAB__/notes", "__GITLAB__/comments"],
                "http_method": "POST",
                "post_data": {"$.note.text": "^.*thanks.*$", "$.rows[?(@.new == 1)].names": ["a"]},
                "response_content": {"count": 3, "$.items[0].ok": True},
            },
        },
    ],
}
TASKS = [RATING, WISH, OPEN, NOTE]


def request(method, url, status=200, *, headers=None, posted=None, body=None, cookies=None):
    as_list = [{"name": name, "value": value} for name, value in (headers or {}).items()]
    asked = {"method": method, "url": url, "headers": as_list}
    if posted is not None:
        kind = "application/json" if posted.startswith("{") else "application/x-www-form-urlencoded; charset=UTF-8"
        asked["postData"] = {"mimeType": kind, "text": posted}
    content = {} if body is None else {"mimeType": "application/json", "text": json.dumps(body)}
    kept = [{"name": name, "value": value} for name, value in (cookies or {}).items()]
    return {"request": asked, "response": {"status": status, "content": content, "cookies": kept}, "time": 3}


def page(url, status=200):
    return request("GET", url, status, headers={"Accept": "text/html,*/*", "Cookie": "session=secret"})


def response(task_type, data=None, status="SUCCESS"):
    return json.dumps({"task_type": task_type, "status": status, "retrieved_data": data, "error_details": None})


ADDED = request(
    "POST",
    f"{SHOP}/wishlist/add?ajax=1",
    302,
    headers={"Referer": f"{SHOP}/tall-lamp.html", "Cookie": "session=secret"},
    posted="product=17&price=%2447.00&form_key=k",
    cookies={"message": "%5B%7Ba%20lamp%20has%20been%20added%7D%5D", "session": "secret"},
)
POSTED = {
    "note": {"text": "Many Thanks, all"},
    "rows": json.dumps([{"new": 1, "names": "a"}, {"new": 0, "names": "b"}]),
}
NOTED = request(
    "POST",
    "http://git.test/comments",
    posted=json.dumps(POSTED),
    body={"count": 3, "items": [{"ok": True}], "more": 1},
)
HONEST = {
    1: (response("RETRIEVE", [{"day": "2023-05-03", "who": "zoe"}]), [page(SHOP)]),
    2: (response("MUTATE"), [page(SHOP), request("GET", f"{SHOP}/wishlist/add.js"), ADDED, page(f"{SHOP}/wishlist")]),
    3: (response("NAVIGATE"), [page("http://git.test/"), page("http://git.test/issues/?state=opened")]),
    4: (response("MUTATE"), [page("http://git.test/"), NOTED]),
}


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "webarena-verified.json").write_text(json.dumps(TASKS))
    return tmp_path


@pytest.fixture
def runs(workplace):
    """The runs of an honest agent."""
    folder = workplace / "runs"
    for number, (answer, entries) in HONEST.items():
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "agent_response.json").write_text(answer)
        write_trace(folder, number, entries)
    sites = {
        "__SHOPPING__": {"urls": [SHOP], "credentials": {"username": "u"}},
        "gitlab": {"urls": ["http://git.test"]},
    }
    (folder / "config.json").write_text(json.dumps({"environments": sites}))
    return folder


def write_trace(folder, number, entries):
    (folder / str(number) / "network.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))


def benchmark(workplace):
    return load_benchmark("webarena_verified", workplace / "data")


def scores(workplace, folder, **settings):
    card, result = score_stored(StoredRequest(benchmark(workplace), folder, **settings))
    assert validate_card(card) == []
    return card, {record.rollout.item_id.rpartition("-")[2]: record.score for record in iter_rollouts(card)}, result


def test_an_honest_agent_passes_and_each_part_has_its_own_view(workplace, runs):
    card, found, result = scores(workplace, runs)
    assert {number: score.value for number, score in found.items()} == {"1": 1.0, "2": 1.0, "3": 1.0, "4": 1.0}
    assert result.summary.n_missing == 0 and not any(score.labels for score in found.values())
    assert set(found["1"].views) == {"task_type", "status", "retrieved_data"}
    assert set(found["2"].views) == {
        *("task_type", "status", "event_url", "event_method", "event_status", "event_headers"),
        *("event_post_data", "event_response"),
    }
    assert set(found["2"].views.values()) == {1.0}
    assert found["2"].reason == "the expected response and all 2 expected requests"
    text = "".join(json.dumps(str(record)) for record in iter_rollouts(card))
    assert "secret" not in text, "nothing that no check looks at is kept"


def test_a_lying_agent_that_claims_success_without_the_request_fails(workplace, runs):
    for number in (2, 3, 4):
        write_trace(runs, number, HONEST[number][1][:1])
    _, found, _ = scores(workplace, runs)
    assert [found[number].value for number in "1234"] == [1.0, 0.0, 0.0, 0.0]
    assert [found[number].labels for number in "234"] == [("claimed_without_doing",)] * 3
    assert found["2"].views == {"task_type": 1.0, "status": 1.0, "event_url": 0.0, "event_method": 1.0}
    assert found["2"].reason == "request 1 of 2: no request to POST __SHOPPING__/wishlist/add/"
    (runs / "2" / "agent_response.json").write_text(response("MUTATE", status="NOT_FOUND_ERROR"))
    _, found, _ = scores(workplace, runs)
    assert found["2"].labels == ("wrong_answer", "wrong_state"), "who reports a failure lies about nothing"


def changed(entry, where, value):
    entry = copy.deepcopy(entry)
    place = entry
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return entry


@pytest.mark.parametrize(
    ("number", "entries", "view", "said"),
    [
        (2, [changed(ADDED, ["request", "method"], "GET")], "event_method", "was sent as GET"),
        (2, [changed(ADDED, ["response", "status"], 500)], "event_status", "answered with 500"),
        (2, [ADDED, changed(ADDED, ["response", "status"], 500)], "event_status", "answered with 500"),
        (2, [changed(ADDED, ["request", "url"], f"{SHOP}/wishlist/add?to=me")], "event_url", "is not __SHOPPING__"),
        (2, [changed(ADDED, ["request", "headers"], [])], "event_headers", "no header referer"),
        (2, [changed(ADDED, ["request", "postData", "text"], "product=18&price=47")], "event_post_data", 'is "18"'),
        (2, [changed(ADDED, ["request", "postData", "text"], "product=17&price=48")], "event_post_data", 'is "48"'),
        (2, [changed(ADDED, ["request", "postData", "text"], "product=17&price=47&qty_3=1")], "event_post_data", '"1"'),
        (
            2,
            [changed(ADDED, ["request", "postData", "mimeType"], "text/plain")],
            "event_post_data",
            "nothing was posted",
        ),
        (2, [changed(ADDED, ["response", "cookies"], [])], "event_response", "cookie message is null"),
        (2, [ADDED, request("POST", f"{SHOP}/contact")], "event_url", "must not be sent"),
        (3, [page("http://git.test/issues?state=opened"), page("http://git.test/")], "event_url", "is not __GITLAB__"),
        (3, [page("http://git.test/issues?state=closed")], "event_url", "is not __GITLAB__"),
        (3, [request("GET", "http://git.test/issues?state=opened")], "event_method", "was sent as GET"),
        (4, [changed(NOTED, ["request", "postData", "text"], '{"note": {"text": "no"}}')], "event_post_data", '"no"'),
        (4, [changed(NOTED, ["response", "content", "text"], '{"count": 4}')], "event_response", "response is 4"),
        (4, [changed(NOTED, ["response", "content", "text"], '{"count": 3}')], "event_response", "response is null"),
    ],
)
def test_one_request_that_is_otherwise_is_named_with_its_part(workplace, runs, number, entries, view, said):
    write_trace(runs, number, [page(SHOP), *entries] if number != 3 else entries)
    _, found, _ = scores(workplace, runs)
    score = found[str(number)]
    assert (score.value, score.views[view]) == (0.0, 0.0) and said in score.reason
    assert all(found[other].value == 1.0 for other in "1234" if other != str(number))


def test_a_failed_request_before_or_any_right_one_where_any_counts_does_no_harm(workplace, runs):
    failed = changed(NOTED, ["response", "status"], 500)
    write_trace(runs, 4, [NOTED, failed])
    write_trace(runs, 2, [changed(ADDED, ["response", "status"], 500), ADDED])
    assert [score.value for score in scores(workplace, runs)[1].values()] == [1.0] * 4


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ("I looked it up: Zoë, May 3, 2023.", ("answer_parse_fail",)),
        ("", ("answer_parse_fail",)),
        (response("RETRIEVE", [{"who": "Zoë", "day": "2023-05-04"}]), ("wrong_answer",)),
        (response("RETRIEVE", [{"who": "Zoë", "day": "May 2023"}]), ("wrong_answer",)),
        (response("RETRIEVE", [{"who": "^.*$", "day": "2023-05-03"}]), ("wrong_answer",)),
        (response("RETRIEVE", [{"who": ["Ann", "Ben", "Zoë"], "day": "2023-05-03"}]), ("wrong_answer",)),
        (response("RETRIEVE", [{"who": name, "day": "2023-05-03"} for name in ("Ann", "Zoë")]), ("wrong_answer",)),
        (response("RETRIEVE"), ("wrong_answer",)),
        (response("NAVIGATE", [{"who": "Zoë", "day": "2023-05-03"}]), ("wrong_answer",)),
        ("[" * 100_000, ("answer_parse_fail",)),
        (json.dumps({"task_type": ["RETRIEVE"], "status": 3, "retrieved_data": {"who": {}}}), ("wrong_answer",)),
    ],
)
def test_an_answer_that_is_wrong_or_plays_with_the_scorer_is_that_agents_own(workplace, runs, answer, labels):
    (runs / "1" / "agent_response.json").write_text(answer)
    _, found, _ = scores(workplace, runs)
    assert (found["1"].value, found["1"].labels) == (0.0, labels)


@pytest.mark.parametrize("answer", ["```json\n{}\n```", "Done:\n```\n{}```", "{}"])
def test_an_answer_may_stand_in_a_code_block_and_may_hold_one(workplace, runs, answer):
    stated = json.loads(HONEST[1][0]) | {"error_details": "```x```"} if answer == "{}" else json.loads(HONEST[1][0])
    (runs / "1" / "agent_response.json").write_text(answer.replace("{}", json.dumps(stated)))
    assert scores(workplace, runs)[1]["1"].value == 1.0


@pytest.mark.parametrize("url", ["file:///", "http:///", "http://[x/", "^($"])
def test_a_request_to_no_url_is_met_by_nothing_and_stops_nothing(workplace, runs, url):
    write_trace(runs, 2, [page(url), ADDED])
    write_trace(runs, 3, [*HONEST[3][1], page(url)])
    write_trace(runs, 4, [request("POST", url, posted=json.dumps(POSTED))])
    _, found, _ = scores(workplace, runs)
    assert [found[number].value for number in "1234"] == [1.0, 1.0, 0.0, 0.0]


def test_a_run_that_is_not_complete_is_missing_with_its_reason_and_never_zero(workplace, runs):
    (runs / "1" / "network.har").unlink()
    (runs / "2" / "agent_response.json").unlink()
    write_trace(runs, 3, [])
    card, found, result = scores(workplace, runs)
    assert (result.summary.score.value, result.summary.n_missing) == (1.0, 3)
    assert [found[number].value for number in "123"] == [None] * 3
    reasons = [record.rollout.reason for record in iter_rollouts(card) if record.score.value is None]
    for said in ("1/network.har does not exist", "2/agent_response.json does not exist", "3/network.har records no"):
        assert any(said in reason for reason in reasons)


def test_without_a_recorded_request_a_task_that_only_asks_for_an_answer_is_scored_by_it(workplace, runs):
    for number in (1, 2):
        write_trace(runs, number, [])
    _, found, result = scores(workplace, runs)
    assert (found["1"].value, found["2"].value, result.summary.n_missing) == (1.0, None, 1)
    (runs / "1" / "agent_response.json").write_text(response("RETRIEVE", [{"who": "Ann", "day": "2023-05-03"}]))
    assert scores(workplace, runs)[1]["1"].value == 0.0


MULTIPART = {
    "mimeType": "multipart/form-data; boundary=x",
    "text": "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("product", "17"), ("product", "18"), ("price", "47"))
    ),
}
OTHER_NAME = MULTIPART["text"].replace("18", "17").replace('; name="product"', '; x-name="product"')
SMUGGLED = (
    '--x\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello--x\r\nContent-Disposition: form-data; '
    'name="product"\r\n\r\n17\r\n--x\r\nContent-Disposition: form-data; name="price"\r\n\r\n47\r\n--x--\r\n'
)
"""A server reads two fields: a boundary begins a line."""


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"text": "product=17&product=18&price=47"}, 0.0),
        ({"text": "product=18&product=17&price=47"}, 0.0),
        ({"text": "product=17&product=17&price=47"}, 1.0),
        ({"text": "product=17&price=47&note=a&note=b"}, 1.0),
        (MULTIPART, 0.0),
        (MULTIPART | {"text": MULTIPART["text"].replace("18", "17")}, 1.0),
        (MULTIPART | {"text": SMUGGLED}, 0.0),
        (MULTIPART | {"text": OTHER_NAME}, 0.0),
    ],
)
def test_a_field_that_is_posted_with_several_values_has_no_single_one(workplace, runs, body, value):
    entry = copy.deepcopy(ADDED)
    entry["request"]["postData"] |= body
    write_trace(runs, 2, [page(SHOP), entry])
    score = scores(workplace, runs)[1]["2"]
    assert score.value == value
    assert value or "product is [" in score.reason or "product is null" in score.reason


def in_base64(body):
    return body | {"text": base64.b64encode(body["text"].encode()).decode(), "encoding": "base64"}


def test_bodies_in_base64_are_read_and_what_is_not_base64_is_no_body(workplace, runs):
    entry = copy.deepcopy(NOTED)
    entry["request"]["postData"] = in_base64(entry["request"]["postData"])
    entry["response"]["content"] = in_base64(entry["response"]["content"])
    write_trace(runs, 4, [page("http://git.test/"), entry])
    assert scores(workplace, runs)[1]["4"].value == 1.0
    wrong = changed(entry, ["response", "content"], in_base64({"mimeType": "application/json", "text": '{"count": 4}'}))
    write_trace(runs, 4, [wrong])
    assert scores(workplace, runs)[1]["4"].views["event_response"] == 0.0
    write_trace(runs, 4, [changed(entry, ["request", "postData", "text"], json.dumps(POSTED))])
    assert "nothing was posted" in scores(workplace, runs)[1]["4"].reason


def test_tasks_without_a_run_are_refused_unless_the_caller_allows_them(workplace, runs):
    for file in (runs / "4").iterdir():
        file.unlink()
    (runs / "4").rmdir()
    with pytest.raises(ConfigError, match="1 of 4 items of webarena_verified have no answer"):
        scores(workplace, runs)
    assert scores(workplace, runs, is_partial=True)[2].summary.n_missing == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("2/network.har", "{", "network.har: is not JSON"),
        ("2/network.har", "[]", "network.har: is no HAR"),
        ("2/network.har", '{"log": {"entries": [{"request": {}}]}}', r"log.entries\[0\]: .*`method`"),
        ("config.json", '{"environments": {"__GITLAB__": {"urls": ["http://g"]}}}', "no address of __SHOPPING__"),
        ("config.json", '{"sites": 3}', "config.json: .*environments"),
        ("77/x", "", "name no item of webarena_verified"),
    ],
)
def test_files_in_another_layout_are_refused_with_their_place(workplace, runs, name, text, said):
    (runs / name).parent.mkdir(exist_ok=True)
    (runs / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        scores(workplace, runs)
    with pytest.raises(ConfigError, match="holds no run; each is a folder TASK_ID"):
        scores(workplace, workplace / "data")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (["eval", 1, "evaluator"], "Judge", "Invalid value 'Judge'"),
        (["eval", 1, "expected"], {}, "missing required field `url`"),
        (["eval", 1, "expected", "post_data"], {"$..any": 1}, "the path '.*' is not read here"),
        (["eval", 1, "expected", "url"], "^(x$", "field 'eval': "),
        (["eval"], [], "no check of the response"),
        (["sites"], "shopping", "field 'sites' is missing or not list"),
    ],
)
def test_a_task_whose_checks_cannot_be_made_is_refused_with_its_row(workplace, place, value, said):
    tasks = [RATING, changed(WISH, place, value)]
    (workplace / "data" / "webarena-verified.json").write_text(json.dumps(tasks))
    with pytest.raises(ConfigError, match=rf"webarena-verified.json:2: .*{said}"):
        benchmark(workplace).named_set(None, b"secret")


def test_prompts_hide_what_is_expected_and_no_model_is_played(workplace):
    items = [named.item for named in benchmark(workplace).named_set(None, b"secret").items]
    assert [item.prompt for item in items] == [task["intent"] for task in TASKS]
    assert [item.payload["task_type"] for item in items] == ["shopping", "shopping", "gitlab", "gitlab"]
    assert all(item.reference is None for item in items)
    with pytest.raises(ConfigError, match="no model is played here; record runs there, then: agent2 score"):
        benchmark(workplace).environment()


def test_a_card_is_scored_again_from_what_it_holds(workplace, runs):
    card, found, _ = scores(workplace, runs)
    rescore(card, workplace / "again", benchmark=benchmark(workplace))
    assert [record.score for record in iter_rollouts(workplace / "again")] == list(found.values())
