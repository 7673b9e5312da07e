"""Our verdicts on recorded runs of WebArena-Verified against those of the official evaluator, run by run.

    python -m venv /tmp/official && /tmp/official/bin/pip install webarena-verified==1.2.3
    agent2 benchmarks get webarena_verified
    python benchmarks/webarena_agreement.py --python /tmp/official/bin/python --out agreement.json

Of every task the right run is made up from what the task expects, the same in other forms (dates, prices, durations
and addresses written otherwise, members in another order), and runs with one mistake each: a wrong answer, a wrong
status, a request that is missing or was sent otherwise. Printed are, by group, how many runs pass on both sides, and
every kind of difference with its number and one example. The last group is no honest agent's: answers that list guesses
or are patterns. Recorded runs of real sites are not at hand.
"""

import argparse
import base64
import copy
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.webarena_verified import read_entries
from agent2.records import Item, Rollout, RolloutStatus, Usage
from agent2.scorers.web_trace import CHECKS, EVENTS, SITES, WebTraceScorer, read_checks

OFFICIAL = Path(__file__).with_name("webarena_official.py")
PORTS = {"GITLAB": "8023", "REDDIT": "9999", "SHOPPING": "7770", "MAP": "3030", "WIKIPEDIA": "8888"}
ADDRESSES = {f"__{name}__": f"http://localhost:{port}" for name, port in PORTS.items()}
ADDRESSES["__SHOPPING_ADMIN__"] = "http://localhost:7780/admin"
RIGHT, FORM, WRONG, PLAY = "right", "another form", "one mistake", "plays with the scorer"
Run = dict[str, Any]
"""response: an object or a text; entries: of the HAR."""


def example_of(pattern: str, rng: random.Random) -> str:
    """A text that a pattern matches: enough for the patterns of these tasks. Raises ValueError where it does not."""
    parser = re._parser  # type: ignore[attr-defined]  # the standard library's own, which has no public name

    def of(parts: Any) -> str:
        written = ""
        for kind, value in parts:
            name = str(kind)
            if name == "LITERAL":
                written += chr(value)
            elif name == "ANY":
                written += "x"
            elif name == "IN":
                kind, member = value[0]
                written += (
                    chr(member if isinstance(member, int) else member[0])
                    if str(kind) in ("LITERAL", "RANGE")
                    else (" " if "SPACE" in str(member) else "7")
                )
            elif name in ("MAX_REPEAT", "MIN_REPEAT"):
                low, high, inner = value
                written += of(inner) * max(low, min(1, high))
            elif name == "SUBPATTERN":
                written += of(value[-1])
            elif name == "BRANCH":
                written += of(rng.choice(value[1]))
            elif name == "ASSERT":
                written += of(value[1])
        return written

    for _ in range(20):
        text = of(parser.parse(pattern))
        if re.match(pattern, text):
            return text
    raise ValueError(f"no example of {pattern!r}")


def plain(value: Any, rng: random.Random) -> Any:
    """One value of those that are expected: the first alternative, an example of a pattern, addresses filled in."""
    if isinstance(value, list) and len(value) > 1:
        return plain(value[0], rng)
    if isinstance(value, dict):
        return {key: plain(part, rng) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    text = example_of(value, rng) if re.fullmatch(r"\^.*\$", value, re.DOTALL) else value
    for name, address in ADDRESSES.items():
        text = text.replace(name, address)
    return text.replace("__SSH_HOST__", "localhost")


def body_of(fields: dict[str, Any], schema: dict[str, Any], rng: random.Random) -> dict[str, str]:
    """The posted data that hold these fields."""
    posted: dict[str, Any] = {}
    kinds = schema.get("properties", {})
    is_json = any(re.match(r"\$\.[a-z]", key) for key in fields) or any(isinstance(v, list) for v in fields.values())
    for key, expected in fields.items():
        is_list = kinds.get(key, {}).get("type") == "array" or (isinstance(expected, list) and len(expected) == 1)
        value = [plain(part, rng) for part in expected] if is_list else plain(expected, rng)
        if value is None:
            continue
        if key.startswith("$['"):
            name = key[3 : key.index("']")]
            posted[name] = json.dumps([{"newProduct": 1, "attributes": part} for part in value] + [{"newProduct": 0}])
            is_json = False
        elif key.startswith("$.^"):
            posted[example_of(key[2:], rng)] = value
        elif key.startswith("$."):
            place: Any = posted
            steps = [int(step) if step.isdecimal() else step for step in re.findall(r"[\w-]+", key[2:])]
            for step, following in zip(steps, [*steps[1:], None], strict=True):
                empty: Any = [] if isinstance(following, int) else {}
                if isinstance(step, int):
                    place.extend([{} for _ in range(step + 1 - len(place))])
                    place[step] = value if following is None else place[step] or empty
                else:
                    place[step] = value if following is None else place.get(step, empty)
                place = place[step]
        else:
            posted[key] = value
    if is_json:
        return {"mimeType": "application/json", "text": json.dumps(posted)}
    return {"mimeType": "application/x-www-form-urlencoded", "text": urlencode({k: str(v) for k, v in posted.items()})}


def entry(url: str, method: str = "GET", status: int = 200, *, is_page: bool = False) -> Run:
    """One request of a HAR."""
    headers = [{"name": "User-Agent", "value": "a browser"}]
    if is_page:
        headers += [{"name": "Accept", "value": "text/html,application/xhtml+xml"}]
    request: Run = {"method": method, "url": url, "headers": headers}
    return {
        "request": request,
        "response": {"status": status, "headers": [], "cookies": [], "content": {}, "redirectURL": ""},
    }


def entry_of(check: Run, rng: random.Random) -> Run:
    """The request that a check expects."""
    expected = check["expected"]
    url = plain(expected["url"], rng)
    query = {name: plain(values[0], rng) for name, values in (expected.get("query_params") or {}).items() if values}
    if query and check.get("decode_base64_query"):
        url = f"{url}/{base64.urlsafe_b64encode(urlencode(query).encode()).decode().rstrip('=')}/"
    elif query:
        url = f"{url}?{urlencode(query)}"
    method = expected.get("http_method", "GET")
    made = entry(url, method, expected.get("response_status", 200), is_page=method == "GET")
    for name, value in (expected.get("headers") or {}).items():
        made["request"]["headers"].append({"name": name.title(), "value": plain(value, rng)})
    if expected.get("post_data"):
        made["request"]["postData"] = body_of(expected["post_data"], check.get("post_data_schema") or {}, rng)
    if expected.get("response_content"):
        made["response"]["content"] = body_of(expected["response_content"] | {"$.more.of": 1}, {}, rng)
    for name, value in (expected.get("response_cookies") or {}).items():
        made["response"]["cookies"].append({"name": name, "value": quote(plain(value, rng))})
    return made


def right_run(task: Run, rng: random.Random) -> Run:
    """The run that meets every expectation."""
    response, *network = task["eval"]
    found = response["expected"].get("retrieved_data")
    stated = {
        "task_type": response["expected"]["task_type"].upper(),
        "status": response["expected"]["status"],
        "retrieved_data": None if found is None else [plain(value, rng) for value in found],
        "error_details": None,
    }
    start = [entry(plain(url, rng), is_page=True) for url in task["start_urls"]]
    picture = entry(start[0]["request"]["url"] + "/a.png")
    asked = [entry_of(check, rng) for check in network if not check.get("should_not_exist")]
    return {"response": stated, "entries": [*start, picture, *asked]}


def other_forms(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The same value written otherwise."""
    text = str(value)
    if kind in ("string", "location-name") and isinstance(value, str):
        yield from (
            ("capitals", text.upper()),
            ("white space", f"  {text.replace(' ', '  ')} "),
            ("a full stop", f"{text}."),
        )
        yield from (("quotes", f'"{text}"'), ("a curly apostrophe", text.replace("'", "’")))
        yield "a trade mark", f"{text}™"
    if kind in ("number", "integer") and isinstance(value, int | float):
        yield from (("as text", text), ("with commas", f"{value:,}"), ("as a fraction", f"{float(value):.1f}"))
    if kind == "boolean":
        yield from (("yes and no", "yes" if value else "no"), ("as text", text))
    if kind == "currency":
        amount = float(re.sub(r"[^\d.-]", "", text))
        yield from (("dollars", f"${amount:,.2f}"), ("behind it", f"{amount:.2f} USD"), ("euros", f"€ {amount:.2f}"))
        yield from (
            ("5 cents more", amount + 0.05),
            ("no cents", f"${amount:,.0f}" if amount == int(amount) else amount),
        )
    if kind == "date":
        from dateutil import parser  # type: ignore[import-untyped]

        day = parser.parse(text)
        for form in ("%Y-%m-%d", "%m/%d/%Y", "%B %d, %Y", "%d %b %Y", "%b %d, %y", "%m/%d/%y", "%A, %B %d, %Y"):
            yield form, day.strftime(form)
    if kind == "duration":
        parts = {unit[0]: int(number) for number, unit in re.findall(r"(\d+)\s*([a-z]+)", text)}
        minutes = 60 * parts.get("h", 0) + parts.get("m", 0)
        yield from (("minutes", f"{minutes} minutes"), ("clock", f"{minutes // 60}:{minutes % 60:02}:00"))
        yield from (("two more", f"{minutes + 2}min"), ("words", f"{minutes // 60} hours, {minutes % 60} minutes"))
        yield "h and m", f"{minutes // 60}h{minutes % 60}m"
    if kind == "distance" and (found := re.match(r"([\d.]+)\s*([a-z]+)", text)):
        metres = float(found[1]) * (1000 if found[2] == "km" else 1)
        yield from (
            ("metres", f"{metres:.0f} m"),
            ("miles", f"{metres / 1609.344:.4f} miles"),
            ("1.5% more", f"{metres * 1.015:.1f}m"),
        )
        yield from (("kilometres", f"{metres / 1000} kilometers"), ("feet", f"{metres / 0.3048:.2f} ft"))
    if kind == "month":
        yield from (("short", text[:3]), ("capitals", text.upper()))
    if kind == "coordinates":
        latitude, longitude = (float(value[name]) for name in ("latitude", "longitude"))
        yield from (("text", f"{latitude}, {longitude}"), ("short names", {"lat": latitude, "lon": longitude}))
        yield from (
            ("sides", f"{latitude}N {-longitude}W"),
            ("numbers", {"latitude": latitude, "longitude": longitude}),
        )
    if kind == "url":
        yield from (("capitals", text.upper()), ("long form", f"ssh://{text.replace(':', ':2222/', 1)}"))


def wrong_values(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value that is none of the expected ones."""
    text = str(value)
    if kind in ("string", "location-name"):
        yield from (
            ("another text", "something else entirely"),
            ("half of it", text[: len(text) // 2]),
            ("more of it", text + " and more"),
        )
    elif kind in ("number", "integer") and isinstance(value, int | float):
        yield from (("one more", value + 1), ("ten times", 10 * value + 1), ("no number", "many"))
    elif kind == "boolean":
        yield from (("the other", not value), ("maybe", "maybe"))
    elif kind == "currency":
        amount = float(re.sub(r"[^\d.-]", "", text))
        yield from (("20 cents more", amount + 0.2), ("negative", f"-${amount + 1}"), ("no price", "free"))
    elif kind == "date":
        yield from (("another day", "January 1, 1999"), ("no date", "soon"))
    elif kind == "duration":
        yield from (("much longer", "19 hours"), ("no unit", re.sub(r"\D", "", text)), ("no duration", "long"))
    elif kind == "distance":
        yield from (("much further", "9999 km"), ("no unit", re.sub(r"[^\d.]", "", text)), ("no distance", "far"))
    elif kind == "month":
        yield from (("another", "Smarch"), ("out of range", 13))
    elif kind == "coordinates":
        yield from (("elsewhere", "1.0, 2.0"), ("none", "here"))
    elif kind == "url":
        yield "another", text.replace("super", "duper") + "x"


def leaves(value: Any, schema: Run) -> Iterator[tuple[list[Any], str, Any]]:
    """Path, kind and value of each part of the retrieved data."""
    kind = schema.get("format") or schema.get("type") or "string"
    if isinstance(value, list):
        for k, part in enumerate(value):
            yield from (([k, *path], name, leaf) for path, name, leaf in leaves(part, schema.get("items") or {}))
    elif isinstance(value, dict) and kind != "coordinates":
        for key, part in value.items():
            inner = (schema.get("properties") or {}).get(key) or {}
            yield from (([key, *path], name, leaf) for path, name, leaf in leaves(part, inner))
    elif value is not None:
        yield [], kind, value


def put(run: Run, path: list[Any], value: Any) -> Run:
    """The run with another value at a path."""
    changed = copy.deepcopy(run)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def runs(task: Run, rng: random.Random) -> Iterator[tuple[str, str, Run]]:
    """Group, kind and run."""
    run = right_run(task, rng)
    yield RIGHT, "as expected", run
    stated, entries = run["response"], run["entries"]
    found, schema = stated["retrieved_data"], task["eval"][0].get("results_schema") or {}
    yield FORM, "response in a code block", run | {"response": f"Done.\n```json\n{json.dumps(stated)}\n```"}
    legacy = {
        "performed_operation": stated["task_type"].lower(),
        **{k: v for k, v in stated.items() if k != "task_type"},
    }
    yield FORM, "the older name, small letters", run | {"response": legacy}
    yield FORM, "without error_details", run | {"response": {k: v for k, v in stated.items() if k != "error_details"}}
    for name, response in (
        ("words alone", "I have done it."),
        ("nothing", ""),
        ("an empty object", {}),
        ("a list", [stated]),
    ):
        yield WRONG, f"response: {name}", run | {"response": response}
    other = "NOT_FOUND_ERROR" if stated["status"] == "SUCCESS" else "SUCCESS"
    yield WRONG, "another status", put(run, ["response", "status"], other)
    yield WRONG, "no status", run | {"response": {k: v for k, v in stated.items() if k != "status"}}
    types = [name for name in ("RETRIEVE", "MUTATE", "NAVIGATE") if name != stated["task_type"]]
    yield WRONG, "another task_type", put(run, ["response", "task_type"], types[0])
    if stated["task_type"] == "RETRIEVE":
        yield from retrieved(run, found, schema)
    if not task["eval"][1:]:
        return
    for check in task["eval"][1:]:
        if check.get("should_not_exist"):
            yield WRONG, "a request that must not be", run | {"entries": [*entries, entry_of(check, rng)]}
    n_start = len(task["start_urls"]) + 1
    asked = range(n_start, len(entries))
    if asked:
        yield WRONG, "no request at all", run | {"entries": entries[:n_start]}
        yield WRONG, "the last request is missing", run | {"entries": entries[:-1]}
        yield FORM, "another page before", run | {"entries": [entry("http://localhost:1/x", is_page=True), *entries]}
        yield FORM, "a script after", run | {"entries": [*entries, entry(entries[0]["request"]["url"] + "/x.js")]}
        another = entry(entries[0]["request"]["url"] + "/elsewhere", is_page=True)
        yield (
            WRONG if stated["task_type"] == "NAVIGATE" else FORM,
            "another page after",
            run | {"entries": [*entries, another]},
        )
    for k in asked:
        yield from requests(run, k)


def retrieved(run: Run, found: Any, schema: Run) -> Iterator[tuple[str, str, Run]]:
    """Runs with other retrieved data."""
    where = ["response", "retrieved_data"]
    if not found:
        yield FORM, "an empty list", put(run, where, [])
        yield WRONG, "data that nobody expects", put(run, where, ["x"])
        return
    yield FORM if len(found) == 1 else WRONG, "one value alone", put(run, where, found[0])
    yield WRONG, "nothing retrieved", put(run, where, None)
    yield WRONG, "one value less", put(run, where, found[:-1])
    yield WRONG, "one value more", put(run, where, [*found, found[0]])
    if len(found) > 1:
        yield FORM, "in reverse order", put(run, where, found[::-1])
    if isinstance(found[0], dict) and (schema.get("items") or {}).get("format") != "coordinates":
        yield WRONG, "a member more", put(run, [*where, 0], found[0] | {"extra": "x"})
        yield WRONG, "a member less", put(run, [*where, 0], dict(list(found[0].items())[1:]))
    for path, kind, value in list(leaves(found, schema))[:3]:
        place = [*where, *path]
        for name, form in other_forms(kind, value):
            yield FORM, f"{kind}: {name}", put(run, place, form)
        for name, wrong in wrong_values(kind, value):
            yield WRONG, f"{kind}: {name}", put(run, place, wrong)
        yield PLAY, f"{kind}: guesses in a list", put(run, place, ["a wrong guess", "another", value])
        yield PLAY, f"{kind}: a pattern", put(run, place, "^.*$")


def requests(run: Run, k: int) -> Iterator[tuple[str, str, Run]]:
    """Runs in which one request is otherwise."""
    request, response = run["entries"][k]["request"], run["entries"][k]["response"]
    at, url, method = ["entries", k, "request"], request["url"], request["method"]
    yield WRONG, "another method", put(run, [*at, "method"], "DELETE")
    yield WRONG, "another response status", put(run, ["entries", k, "response", "status"], 500)
    yield WRONG, "another path", put(run, [*at, "url"], url.replace("localhost", "localhost:1"))
    yield WRONG, "another address", put(run, [*at, "url"], re.sub(r"^(http://[^/]+)", r"\1/zz", url))
    yield WRONG, "one parameter more", put(run, [*at, "url"], f"{url}{'&' if '?' in url else '?'}zz=1")
    if "?" in url:
        yield WRONG, "no parameters", put(run, [*at, "url"], url.partition("?")[0])
        yield WRONG, "another parameter", put(run, [*at, "url"], re.sub(r"=[^&]*", "=zz", url))
        base, _, query = url.partition("?")
        yield FORM, "parameters in reverse order", put(run, [*at, "url"], f"{base}?{'&'.join(query.split('&')[::-1])}")
        yield FORM, "parameters in capitals", put(run, [*at, "url"], re.sub(r"=[^&%]*", lambda m: m[0].upper(), url))
    else:
        yield FORM, "a slash at the end", put(run, [*at, "url"], url.rstrip("/") + "/")
    yield FORM, "host in capitals", put(run, [*at, "url"], url.replace("http://localhost", "http://LOCALHOST"))
    failed = put(run, ["entries", k, "response", "status"], 500)["entries"][k]
    yield WRONG, "sent again, and failed", run | {"entries": [*run["entries"], failed]}
    yield FORM, "failed at first", run | {"entries": [*run["entries"][:k], failed, *run["entries"][k:]]}
    if "postData" in request:
        text = request["postData"]["text"]
        yield WRONG, "nothing posted", put(run, [*at, "postData"], {"mimeType": "text/plain", "text": text})
        emptied = "{}" if text.startswith("{") else "zz=1"
        yield WRONG, "other fields posted", put(run, [*at, "postData", "text"], emptied)
        if not text.startswith("{"):
            fields = text.split("&")
            changed = "&".join([fields[0].partition("=")[0] + "=zz", *fields[1:]])
            yield WRONG, "another value posted", put(run, [*at, "postData", "text"], changed)
            yield FORM, "one field more posted", put(run, [*at, "postData", "text"], f"{text}&zz=1")
            yield FORM, "fields in reverse order", put(run, [*at, "postData", "text"], "&".join(fields[::-1]))
    if len(request["headers"]) > 1 and method != "GET":
        yield WRONG, "no headers", put(run, [*at, "headers"], [])
    if response["content"]:
        yield WRONG, "another response", put(run, ["entries", k, "response", "content", "text"], '{"star_count": -1}')
    if response["cookies"]:
        yield WRONG, "no cookie", put(run, ["entries", k, "response", "cookies"], [])


def ours(scorer: WebTraceScorer, item: Item, run: Run) -> tuple[float | None, str]:
    """Our verdict and its reason."""
    text = run["response"] if isinstance(run["response"], str) else json.dumps(run["response"])
    needed = [f"__{name}__".upper() for name in item.payload["sites"]]
    events = read_entries(run["entries"], read_checks(item.payload[CHECKS], item.id), item.id)
    state = {
        EVENTS: msgspec.to_builtins(events),
        SITES: {name: [ADDRESSES[name]] for name in needed},
    }
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), text, state, Usage())
    score = scorer.score(item, rollout)
    return score.value, score.reason


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="of the environment of the official evaluator")
    parser.add_argument("--data", type=Path, help="folder with webarena-verified.json")
    parser.add_argument("--every", type=int, default=1, help="take every Nth task")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    benchmark = cast(Any, load_benchmark("webarena_verified", arguments.data))
    items = {int(named.ids[-1]): named.item for named in benchmark.named_set(None, b"agreement").items}
    rng, cases, unmade = random.Random(7), [], Counter[str]()
    for task_id, item in list(items.items())[:: arguments.every]:
        task = {"eval": item.payload[CHECKS], "start_urls": item.payload["start_urls"]}
        try:
            cases += [(task_id, *case) for case in runs(task, rng)]
        except ValueError as error:
            unmade[str(error)[:100]] += 1
    environments = {name: {"urls": [address]} for name, address in ADDRESSES.items()}
    requests_text = "".join(
        json.dumps(
            {"task_id": task_id, "response": run["response"], "entries": run["entries"], "environments": environments}
        )
        + "\n"
        for task_id, _, _, run in cases
    )
    done = subprocess.run(
        [arguments.python, OFFICIAL], input=requests_text, stdout=subprocess.PIPE, text=True, check=True
    )
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    scorer, table, differences = WebTraceScorer(), Counter[tuple[str, str]](), Counter[tuple[str, ...]]()
    examples: dict[tuple[str, ...], Run] = {}
    for (task_id, group, kind, run), theirs in zip(cases, verdicts, strict=True):
        value, reason = ours(scorer, items[task_id], run)
        sides = (value, theirs["score"])
        table[group, "runs"] += 1
        table[group, "ours"] += value == 1.0
        table[group, "official"] += sides[1] == 1.0
        table[group, "equal"] += (value or 0.0) == (sides[1] or 0.0)
        if (value or 0.0) != (sides[1] or 0.0):
            side = "ours right" if value else "official right"
            key = (group, kind, side + (", official error" if sides[1] is None else ""))
            differences[key] += 1
            examples.setdefault(key, {"task": task_id, "ours": reason, "official": theirs["why"]})
    for group in (RIGHT, FORM, WRONG, PLAY):
        n, right, official, equal = (table[group, name] for name in ("runs", "ours", "official", "equal"))
        print(f"{group:24}{n:7} runs; right: ours {right}, official {official}; equal {equal}")
    for key, n in differences.most_common():
        print(f"{n:5} {' | '.join(key)}: {json.dumps(examples[key], ensure_ascii=False)[:700]}")
    for problem, n in unmade.most_common():
        print(f"no run of {n} tasks: {problem}")
    n_equal, n_runs = (sum(table[group, name] for group in (RIGHT, FORM, WRONG)) for name in ("equal", "runs"))
    print(f"{n_equal} of {n_runs} verdicts on honest runs are equal")
    if arguments.out is not None:
        rows = [[*key, n, examples[key]] for key, n in differences.most_common()]
        arguments.out.write_text(
            json.dumps({"table": [[*key, n] for key, n in table.items()], "differences": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
