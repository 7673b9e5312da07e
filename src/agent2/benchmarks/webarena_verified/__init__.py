"""WebArena-Verified: its published tasks, scored on runs that were recorded on the sites.

A folder of runs has `config.json`, the evaluation's configuration with the addresses of the sites, and for each task a
folder named by its number with `agent_response.json`, the agent's last message, and network.har, the requests of its
browser. An item's kind (`task_type`) is its sites.

Promises: of a trace nothing is kept but what the checks of its task may look at; a missing file, or a trace without
requests where a check needs them, is a missing score with the reason, and a trace in another layout is refused with its
place. Does NOT start a site or a browser, so no model is played.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from agent2.benchmarks.data_files import Row, file_digest
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.official import KIND, OfficialBenchmark, with_values
from agent2.cards.imports.source import document_of, read_text, shaped
from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import Environment, Item, JsonValue, Message, digest_of
from agent2.scorers.web_trace import CHECKS, EVENTS, SITES, Check, EventCheck, ExpectedEvent, WebEvent, read_checks

HOME = Path(__file__).parent
CONFIG, RESPONSE, TRACE = "config.json", "agent_response.json", "network.har"
PAGE_HEADERS = frozenset({"accept", "referer", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-user"})
"""Kept of every request: they say whether a page was opened, and from where."""
FILES = (".css", ".js", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".woff", ".woff2", ".ttf", ".ico", ".webp")
"""Requests for these count for no check."""


class _HarPair(msgspec.Struct):
    name: str
    value: str = ""


class _HarBody(msgspec.Struct, rename="camel"):
    mime_type: str = ""
    text: str = ""
    encoding: str = ""
    """`base64`, or empty: the text is the body."""


class _HarRequest(msgspec.Struct, rename="camel"):
    method: str
    url: str
    headers: list[_HarPair] = []
    post_data: _HarBody | None = None


class _HarResponse(msgspec.Struct):
    status: int
    content: _HarBody = msgspec.field(default_factory=_HarBody)
    cookies: list[_HarPair] = []


class _HarEntry(msgspec.Struct):
    request: _HarRequest
    response: _HarResponse


class _SiteUrls(msgspec.Struct):
    urls: list[str]


class _RunsConfiguration(msgspec.Struct):
    environments: dict[str, _SiteUrls]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What was recorded of one task."""

    events: Sequence[WebEvent] = ()
    sites: Mapping[str, Sequence[str]] | None = None
    problem: str = ""
    """Why nothing can be said of it; empty: it is complete."""


class RecordedRunWorld(QuestionEnvironment):
    """A run that is over: takes the recorded message, and its state has the recorded requests."""

    name, version = "recorded_run", "1.0"

    def __init__(self, runs: Mapping[str, RecordedRun]) -> None:
        """runs: by item id."""
        super().__init__()
        self._runs = runs
        self._run = RecordedRun()

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The task. Raises EnvironmentFailed for one whose run is not complete, and when reused."""
        self._run = self._runs.get(item.id, RecordedRun(problem="no run of it was recorded"))
        if self._run.problem:
            raise EnvironmentFailed(self._run.problem)
        return super().reset(item, seed)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`, `task_type`, `events` and `sites`."""
        return {**super().state(), EVENTS: msgspec.to_builtins(self._run.events), SITES: dict(self._run.sites or {})}


class WebArenaVerified(OfficialBenchmark):
    """The published 812 tasks."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official file."""
        super().__init__(HOME / "webarena_verified.yaml", data=data)
        self._runs: dict[str, RecordedRun] | None = None

    def prepared(self, rows: list[Row]) -> list[Row]:
        """With the sites as kind."""
        return [
            with_values(
                row,
                **{KIND: "-".join(map(str, row.values.get(SITES) or ["none"])), CHECKS: row.values.get("eval")},
            )
            for row in rows
        ]

    def environment(self) -> Environment:
        """A recorded run. Raises ConfigError before runs were read."""
        if self._runs is None:
            raise ConfigError(
                f"benchmark {self.name}: its sites are Docker images, so no model is played here; record runs there, "
                f"then: agent2 score {self.name} FOLDER"
            )
        return RecordedRunWorld(self._runs)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{RecordedRunWorld.name}-v{RecordedRunWorld.version}"

    def read_runs(self, folder: Path) -> list[Row]:
        """A row for each folder of a task. Raises ConfigError for another layout, with its place."""
        try:
            places = sorted((int(place.name), place) for place in folder.iterdir() if _is_number(place.name))
        except OSError as error:
            raise ConfigError(f"{folder}: is no folder of runs that can be read ({error.strerror})") from error
        if not places:
            raise ConfigError(f"{folder}: holds no run; each is a folder TASK_ID with {RESPONSE} and {TRACE}")
        where = folder / CONFIG
        stated = shaped(document_of(where), _RunsConfiguration, str(where)).environments
        sites = {f"__{name.strip('_').upper()}__": site.urls for name, site in stated.items()}
        tasks = {str(question.id): question for question in self.whole_portion(Portion.TEST)}
        self._runs, rows = {}, []
        for number, place in places:
            row = {"id": str(number), "answer": "", "trace": ""}
            if (task := tasks.get(str(number))) is not None:
                needed = {f"__{name}__".upper() for name in task.payload[SITES]}
                if absent := sorted(name for name in needed if not sites.get(name)):
                    raise ConfigError(f"{where}: environments: names no address of {absent[0]}, where task {number} is")
                run = _read_run(place, read_checks(task.payload[CHECKS], task.row.where))
                if not run.problem:  # what an agent wrote is its own fault, so no byte of it stops the others
                    row["answer"], row["trace"] = read_text(place / RESPONSE, "replace"), file_digest(place / TRACE)
                addresses = {name: sites[name] for name in sorted(needed)}
                self._runs[f"{self.name}-{number}"] = RecordedRun(run.events, addresses, run.problem)
            rows.append(Row({**row, SITES: digest_of(sites)}, folder, number))
        return rows


def _read_run(place: Path, checks: Sequence[Check]) -> RecordedRun:
    """The run in a folder, as far as the checks look at it. Raises ConfigError for a trace in another layout."""
    for name in (RESPONSE, TRACE):
        if not (place / name).is_file():
            return RecordedRun(problem=f"{place.name}/{name} does not exist")
    path = place / TRACE
    document = document_of(path)
    log = document.get("log") if isinstance(document, dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(
            f"{path}: is no HAR, which is an object with log.entries; restore the file as it was recorded"
        )
    if not entries and any(isinstance(check, EventCheck) for check in checks):
        return RecordedRun(problem=f"{place.name}/{TRACE} records no request")
    return RecordedRun(read_entries(entries, checks, f"{path}: log.entries"))


def read_entries(entries: Sequence[object], checks: Sequence[Check], where: str) -> list[WebEvent]:
    """The requests of a HAR, as far as checks look at them. Raises ConfigError for an entry in another layout."""
    expected = [check.expected for check in checks if isinstance(check, EventCheck)]
    shaped_entries = [shaped(entry, _HarEntry, f"{where}[{k}]") for k, entry in enumerate(entries)]
    return [_event(entry, expected) for entry in shaped_entries if not _is_file(entry.request.url)]


def _is_number(name: str) -> bool:
    """Whether a folder has the number of a task as its name; 07 is none, so no two have the same."""
    return name.isdecimal() and name == str(int(name))


def _is_file(url: str) -> bool:
    """Whether a picture, a script or the like was asked for."""
    try:
        return urlsplit(url).path.lower().endswith(FILES)
    except ValueError:  # no URL: a request that meets nothing
        return False


def _event(entry: _HarEntry, expected: Sequence[ExpectedEvent]) -> WebEvent:
    headers = PAGE_HEADERS | {name.lower() for event in expected for name in event.headers or ()}
    cookies = {name for event in expected for name in event.response_cookies or ()}
    request, response = entry.request, entry.response
    return WebEvent(
        method=request.method.upper(),
        url=request.url,
        status=response.status,
        headers={header.name.lower(): header.value for header in request.headers if header.name.lower() in headers},
        post=_fields(request.post_data) if any(event.post_data for event in expected) else None,
        content=_fields(response.content) if any(event.response_content for event in expected) else None,
        cookies={cookie.name: unquote(cookie.value) for cookie in response.cookies if cookie.name in cookies},
    )


def _fields(body: _HarBody | None) -> dict[str, JsonValue] | None:
    """The fields of a form or of a JSON object; None: the body is neither."""
    text = _body_text(body)
    if body is None or not text:
        return None
    if "application/x-www-form-urlencoded" in body.mime_type:
        return {name: _one_or_all(values) for name, values in parse_qs(text, keep_blank_values=True).items()}
    if "application/json" in body.mime_type:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None
    boundary = re.search(r"boundary=\"?([^;\s\"]+)", body.mime_type)
    if "multipart/form-data" not in body.mime_type or boundary is None:
        return None
    fields: dict[str, list[str]] = {}
    for part in re.split(rf"(?:^|\n)--{re.escape(boundary[1])}", text):
        head, _, value = part.replace("\r\n", "\n").strip("\n").partition("\n\n")
        if name := re.search(r'^content-disposition:[^;\n]*;\s*name="([^"]+)"', head, re.IGNORECASE | re.MULTILINE):
            fields.setdefault(name[1], []).append(value.strip("\n"))
    return {name: _one_or_all(values) for name, values in fields.items()}


def _body_text(body: _HarBody | None) -> str:
    """The body as text; empty: there is none, or it is not what its encoding says."""
    if body is None or body.encoding.lower() != "base64":
        return body.text if body is not None else ""
    try:
        return base64.b64decode(body.text, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


def _one_or_all(values: Sequence[str]) -> JsonValue:
    """A field's value, or a list of all where it was posted with several: then no single one is what was posted."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else [*different]
