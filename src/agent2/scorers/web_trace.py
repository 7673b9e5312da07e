"""Recorded runs of web tasks: the agent's last message and the requests of its browser against what a task expects.

A task (`checks` of its payload, in the layout of WebArena-Verified) expects a response: the type of the task, its
status, and the retrieved data where something was to be found out. It may also expect requests: one with this method,
URL, parameters, response status, headers, posted fields, response fields and cookies, or none such. A run is right if
every expectation is met; views say of each part on its own whether it was, and which parts a task does not expect have
no view.

Of several requests to the expected place the last one counts, unless a task says that any does; of a task that asks for
a page, the last page that the browser opened. Files such as pictures and scripts are no requests here.

Promises: a claim counts only together with the requests that prove it; what an agent writes is never a pattern or a
list of alternatives. Does NOT open a site: it believes the recorded trace, which the harness has to write and not the
agent.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.scorers.web_values import Address, AddressRules, Sites, is_same, plain_text

CHECKS = "checks"
"""Payload key: what a task expects, as its file has it."""
EVENTS, SITES = "events", "sites"
"""Keys of a rollout's state: the requests in order, and where the sites were."""
RESPONSE, NETWORK = "AgentResponseEvaluator", "NetworkEventEvaluator"
"""The two kinds of checks, as the file names them."""
RESPONSE_VIEWS = ("task_type", "status", "retrieved_data")
EVENT_VIEWS = ("event_url", "event_method", "event_status", "event_headers", "event_post_data", "event_response")
RETRIEVE, NAVIGATE = "retrieve", "navigate"
MAX_ANSWER = 1_000_000
"""Characters of a response that is read."""

_FENCE = "```"
_STEP = re.compile(r"\.([\w-]+)|\['([^']+)'\]|\[(\d+)\]|\[\?\(@\.([\w-]+)\s*==\s*([^()\[\]]+)\)\]")


class WebEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of a browser and its response, as far as checks may look at it."""

    method: str
    url: str
    status: int
    headers: Mapping[str, str] = {}
    """Of the request, by name in lower case."""
    post: Mapping[str, JsonValue] | None = None
    """Posted fields."""
    content: Mapping[str, JsonValue] | None = None
    """A JSON object that came back."""
    cookies: Mapping[str, str] = {}
    """That the response set."""

    @property
    def is_page(self) -> bool:
        """Whether a page was opened, by hand or by a script."""
        headers, accepted = self.headers, self.headers.get("accept", "").lower()
        if "sec-fetch-user" in headers:
            fetch = tuple(headers.get(f"sec-fetch-{name}", "").lower() for name in ("dest", "mode", "user"))
            return self.method == "GET" and fetch == ("document", "navigate", "?1") and "text/html" in accepted
        return self.method == "GET" and accepted.startswith("text/html")


class ExpectedResponse(msgspec.Struct, frozen=True):
    """The response that a task expects."""

    task_type: str
    status: str
    retrieved_data: list[Any] | None = None


class ResponseCheck(msgspec.Struct, frozen=True, tag_field="evaluator", tag=RESPONSE):
    """A check of the response."""

    expected: ExpectedResponse
    results_schema: dict[str, Any] = {}
    ordered: bool = False


class ExpectedEvent(msgspec.Struct, frozen=True):
    """The request that a task expects."""

    url: str | list[str]
    http_method: str = "GET"
    response_status: int = 200
    query_params: dict[str, list[str | None]] | None = None
    headers: dict[str, str | list[str]] | None = None
    post_data: dict[str, Any] | None = None
    response_content: dict[str, Any] | None = None
    response_cookies: dict[str, str] | None = None


class EventCheck(msgspec.Struct, frozen=True, tag_field="evaluator", tag=NETWORK):
    """A check of the trace."""

    expected: ExpectedEvent
    last_event_only: bool = True
    should_not_exist: bool = False
    ignored_query_params: tuple[str, ...] = ()
    ignored_query_params_patterns: tuple[str, ...] = ()
    ignored_post_data_params_patterns: tuple[str, ...] = ()
    decode_base64_query: bool = False
    query_params_schema: dict[str, Any] = {}
    post_data_schema: dict[str, Any] = {}

    @property
    def rules(self) -> AddressRules:
        """Which parameters of a URL count."""
        return AddressRules(
            frozenset(self.ignored_query_params), self.ignored_query_params_patterns, self.decode_base64_query
        )

    def addresses(self, sites: Sites, *, url: str | list[str] | None = None) -> list[Address]:
        """The expected URLs, or those of a header."""
        query = None if url is not None else self.expected.query_params
        expected = self.expected.url if url is None else url
        texts = [expected] if isinstance(expected, str) else expected
        return [self.rules.read(text, sites, query, is_expected=True) for text in texts]


Check = ResponseCheck | EventCheck


def read_checks(value: object, where: str) -> list[Check]:
    """What a task expects. Raises ConfigError for another layout, a path that cannot be followed, and a wrong value."""
    try:
        checks = msgspec.convert(value, list[Check])
        for check in checks:
            if isinstance(check, ResponseCheck):
                data = check.expected.retrieved_data
                is_same(data, data, check.results_schema if data is not None else {}, Sites())
                continue
            _try_event_check(check)
    except (msgspec.ValidationError, ValueError, re.error) as error:
        raise ConfigError(f"{where}: field 'eval': {error}; restore the file as it is published") from error
    if sum(isinstance(check, ResponseCheck) for check in checks) != 1:
        raise ConfigError(f"{where}: field 'eval' holds no check of the response, or several; restore the file")
    return checks


def _try_event_check(check: EventCheck) -> None:
    """Raise ValueError or re.error for a check that cannot be made: it is made of a request that has nothing."""
    expected, kinds = check.expected, check.post_data_schema.get("properties") or {}
    check.addresses(Sites())
    for name, value in (expected.headers or {}).items():
        _ = check.addresses(Sites(), url=value) if name.lower() == "referer" else is_same(value, "", {}, Sites())
    for key, value in (expected.post_data or {}).items():
        _values_at({}, key)
        is_same(value, "", kinds.get(key) or {}, Sites())
    for key in expected.response_content or ():
        _values_at({}, key)
    for pattern in (*check.ignored_query_params_patterns, *check.ignored_post_data_params_patterns):
        re.compile(pattern)
    for text in (expected.response_cookies or {}).values():
        is_same(text, "", {}, Sites())


class WebTraceScorer:
    """Every expectation of a task against a recorded run."""

    name = "web_trace"
    version = "1.0"
    expects = 'a JSON object {"task_type", "status", "retrieved_data"}'
    needs_state = frozenset({EVENTS, SITES})
    emits = ScorerOutput(
        views=frozenset({*RESPONSE_VIEWS, *EVENT_VIEWS}),
        labels=frozenset({"answer_parse_fail", "wrong_answer", "claimed_without_doing", "wrong_state"}),
    )

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload. Raises ConfigError for checks that cannot be made."""
        read_checks(payload.get(CHECKS), where)
        return payload

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None for a rollout without a trace, or with checks that cannot be made."""
        if not isinstance(rollout.state.get(EVENTS), list) or not isinstance(rollout.state.get(SITES), dict):
            return Score(None, f"item {item.id}: no recorded trace; score it from the folder of its run", Fault.JUDGE)
        try:
            checks = read_checks(item.payload.get(CHECKS), f"item {item.id}")
            events = msgspec.convert(rollout.state[EVENTS], list[WebEvent])
            return _verdict(checks, rollout.answer or "", events, Sites(rollout.state[SITES]))
        except (ConfigError, ValueError) as error:  # msgspec's error is one, too
            return Score(None, f"item {item.id}: {error}", Fault.JUDGE)


def _verdict(checks: Sequence[Check], answer: str, events: Sequence[WebEvent], sites: Sites) -> Score:
    response = next(check for check in checks if isinstance(check, ResponseCheck))
    stated, is_response_right = _parsed_response(answer), True
    views: dict[str, float] = {}
    reasons: list[str] = []
    for view, problem in _response_problems(response, stated, sites):
        views[view] = float(problem is None)
        reasons += [problem] if problem is not None else []
        is_response_right &= problem is None
    is_trace_right = True
    network = [check for check in checks if isinstance(check, EventCheck)]
    for number, check in enumerate(network, 1):
        problems = dict(_event_problems(check, events, sites, plain_text(response.expected.task_type)))
        for view, problem in problems.items():
            views[view] = min(views.get(view, 1.0), float(problem is None))
        wrong = [problem for problem in problems.values() if problem is not None]
        reasons += [f"request {number} of {len(network)}: {'; '.join(wrong)}"] if wrong else []
        is_trace_right &= not wrong
    labels = ["answer_parse_fail"] if stated is None else [] if is_response_right else ["wrong_answer"]
    if not is_trace_right:
        claims = stated is not None and plain_text(str(stated.get("status"))) == "success"
        labels.append("claimed_without_doing" if claims else "wrong_state")
    if reasons:
        return Score(0.0, "; ".join(reasons)[:2000], views=views, labels=tuple(labels))
    proof = f" and all {len(network)} expected requests" if network else ""
    return Score(1.0, f"the expected response{proof}", views=views)


def _parsed_response(answer: str) -> Mapping[str, Any] | None:
    """The response that an agent gave; None: it is no JSON object."""
    if len(answer) > MAX_ANSWER:
        return None
    _, fence, after_fence = answer.partition(_FENCE)
    block, end, _ = after_fence.partition(_FENCE)
    for text in (answer, block.removeprefix("json")) if fence and end else (answer,):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            return value if isinstance(value, dict) and value else None
    return None


def _response_problems(
    check: ResponseCheck, stated: Mapping[str, Any] | None, sites: Sites
) -> Iterator[tuple[str, str | None]]:
    """Each part of the response with what is wrong with it."""
    expected, is_retrieval = check.expected, plain_text(check.expected.task_type) == RETRIEVE
    if stated is None:
        for view in RESPONSE_VIEWS if is_retrieval else RESPONSE_VIEWS[:2]:
            yield view, "the response is no JSON object" if view == RESPONSE_VIEWS[0] else "so it has no " + view
        return
    for view in ("task_type", "status"):
        value = stated.get(view, stated.get("performed_operation") if view == "task_type" else None)
        is_right = isinstance(value, str) and plain_text(value) == plain_text(getattr(expected, view))
        yield view, None if is_right else f"{view} is {_brief(value)}"
    if not is_retrieval:
        return
    data = stated.get("retrieved_data")
    if data in (None, "", [], {}):
        data = None
    elif not isinstance(data, list):
        data = [data]
    schema = {**check.results_schema, "type": "array"}
    is_right = is_same(expected.retrieved_data or None, data, schema, sites, is_ordered=check.ordered)
    yield "retrieved_data", None if is_right else f"retrieved_data is {_brief(data)}"


def _event_problems(
    check: EventCheck, events: Sequence[WebEvent], sites: Sites, task_type: str
) -> Iterator[tuple[str, str | None]]:
    """Each part of an expected request with what is wrong with the event that counts for it."""
    expected, rules = check.expected, check.rules
    addresses = check.addresses(sites)
    described = f"{expected.http_method} {expected.url}"
    sent_there = [
        event
        for event in events
        if (address := _address(rules, event.url, sites)) is not None
        and any(place.has_base_of(address) for place in addresses)
    ]
    candidates = [
        event
        for event in sent_there
        if event.method == expected.http_method.upper() and _came_from(check, event, sites)
    ]
    if task_type == NAVIGATE and expected.http_method == "GET":
        candidates = [event for event in events if event.is_page][-1:]
    if check.should_not_exist:
        yield "event_url", f"{len(candidates)} x {described}, which must not be sent" if candidates else None
        return
    if not candidates:
        yield "event_url", None if sent_there else f"no request to {described}"
        yield "event_method", f"{described} was sent as {sent_there[-1].method}" if sent_there else None
        return
    compared = [
        dict(_parts(check, event, sites, addresses)) for event in candidates[-1 if check.last_event_only else 0 :]
    ]
    yield from min(compared, key=lambda parts: sum(problem is not None for problem in parts.values())).items()


def _came_from(check: EventCheck, event: WebEvent, sites: Sites) -> bool:
    """Whether the page before is the expected one, as far as the request names it."""
    expected, actual = (check.expected.headers or {}).get("referer"), event.headers.get("referer")
    if expected is None or not actual:
        return True
    origin = _address(check.rules, actual, sites)
    return origin is not None and any(place.has_base_of(origin) for place in check.addresses(sites, url=expected))


def _address(rules: AddressRules, text: str, sites: Sites) -> Address | None:
    """An address of a run; None: no URL can be read there, so nothing that is expected is met by it."""
    try:
        return rules.read(text, sites)
    except ValueError:
        return None


def _parts(
    check: EventCheck, event: WebEvent, sites: Sites, addresses: Sequence[Address]
) -> Iterator[tuple[str, str | None]]:
    expected, address = check.expected, _address(check.rules, event.url, sites)
    is_there = address is not None and any(place.is_met_by(address, check.query_params_schema) for place in addresses)
    yield "event_url", None if is_there else f"{_brief(sites.named(event.url))} is not {expected.url}"
    is_method = event.method == expected.http_method.upper()
    yield "event_method", None if is_method else f"method {event.method}"
    yield "event_status", None if event.status == expected.response_status else f"answered with {event.status}"
    if expected.headers:
        yield "event_headers", _header_problem(check, event, sites)
    if expected.post_data:
        yield "event_post_data", _post_problem(check, event, sites)
    if expected.response_content or expected.response_cookies:
        yield "event_response", _response_problem(check, event)


def _header_problem(check: EventCheck, event: WebEvent, sites: Sites) -> str | None:
    for name, value in (check.expected.headers or {}).items():
        actual = event.headers.get(name.lower())
        if actual is None:
            return f"no header {name}"
        if name.lower() == "referer":
            origin = _address(check.rules, actual, sites)
            is_right = origin is not None and any(
                place.is_met_by(origin, check.query_params_schema) for place in check.addresses(sites, url=value)
            )
        else:
            is_right = is_same(value, actual, {}, sites)
        if not is_right:
            return f"header {name} is {_brief(actual)}"
    return None


def _post_problem(check: EventCheck, event: WebEvent, sites: Sites) -> str | None:
    kinds = check.post_data_schema.get("properties") or {}
    posted = {
        name: value
        for name, value in (event.post or {}).items()
        if not any(re.search(pattern, name) for pattern in check.ignored_post_data_params_patterns)
    }
    if not posted:
        return "nothing was posted"
    for key, value in (check.expected.post_data or {}).items():
        actual = _value_at(posted, key)
        if not is_same(value, actual, kinds.get(key) or {}, sites):
            return f"{key} is {_brief(actual)}"
    return None


def _response_problem(check: EventCheck, event: WebEvent) -> str | None:
    for key, value in (check.expected.response_content or {}).items():
        actual = _value_at(event.content or {}, key)
        if actual != value or isinstance(actual, bool) != isinstance(value, bool):
            return f"{key} of the response is {_brief(actual)}"
    for name, text in (check.expected.response_cookies or {}).items():
        if not is_same(text, event.cookies.get(name), {}, Sites()):
            return f"cookie {name} is {_brief(event.cookies.get(name))}"
    return None


def _value_at(fields: Mapping[str, Any], key: str) -> Any:
    """The value of a field or at a path; a list where a path leads to several; None: there is none."""
    values = _values_at(fields, key)
    if not values and key.startswith("$"):  # a field may hold JSON as a text
        values = _values_at({name: _unpacked(value) for name, value in fields.items()}, key)
    if not values:
        return None
    return values if len(values) > 1 or "?(" in key else values[0]


def _values_at(fields: Mapping[str, Any], key: str) -> list[Any]:
    """All values at a key, `$.path[0].to`, or `$.^pattern of a key$`. Raises ValueError for another path."""
    pattern = key.removeprefix("$.")
    if pattern.startswith("^") and pattern.endswith("$"):
        return [value for name, value in fields.items() if re.match(pattern, name)]
    if not key.startswith("$"):
        return [fields[key.strip()]] if key.strip() in fields else []
    values: list[Any] = [fields]
    place = 1
    while place < len(key):
        step = _STEP.match(key, place)
        if step is None:
            raise ValueError(f"the path {key!r} is not read here")
        place = step.end()
        name, quoted_name, index, tested, literal = step.groups()
        if index is not None:
            values = [value[int(index)] for value in values if isinstance(value, list) and int(index) < len(value)]
        elif tested is not None:
            tested_value = json.loads(literal)
            members = [member for value in values for member in (value if isinstance(value, list) else [value])]
            values = [member for member in members if isinstance(member, dict) and member.get(tested) == tested_value]
        else:
            key_name = name if name is not None else quoted_name
            values = [value[key_name] for value in values if isinstance(value, dict) and key_name in value]
    return values


def _unpacked(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."
