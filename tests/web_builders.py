"""A small folder of results for tests of the web app: an evaluation, cards, a trial in each state, broken files."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

from fastapi.testclient import TestClient
from msgspec import structs

from agent2.analysis.outcome import read_outcome
from agent2.cards.writer import CardWriter
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.llm.gateway.recording import CallEnded, CallStarted, ExchangeRecorder, Scrubber
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.models.sources import find_checkpoint
from agent2.records import Message, Split, StopReason, Turn
from agent2.reports.eval_pages import write_eval_report
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from card_builders import make_header, make_record
from suite_fakes import find_benchmark, make_suite, write_players

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[31m\u202e&amp;\"'"
LONG_LINE = "A" * 300_000
OWN_PAGE = {"sec-fetch-site": "same-origin"}
"""Headers of a form that a page of the app sends."""


def write_card(
    path: Path, n: int = 6, split: Split = Split.DEV, checkpoint: str = "base", is_open: bool = False
) -> Path:
    """Rollouts of two turns; every third one fails, and one of the failures is hostile."""
    header = make_header(checkpoint_name=checkpoint)
    header = replace(header, protocol=replace(header.protocol, split=split, attempts=1, max_turns=2))
    with CardWriter(path, header) as writer:
        for number in range(n):
            is_bad = number % 3 == 2
            record = make_record(f"item-{number:03}", float(not is_bad))
            action = HOSTILE + LONG_LINE if is_bad else f"I look for {number}."
            turns = [
                Turn(action, f"You see secret-{number} {HOSTILE}", StopReason.END, 10, 5),
                Turn('{"name": "answer", "arguments": {"value": 1}}', None, StopReason.LENGTH, 20, 6),
            ]
            rollout = structs.replace(
                record.rollout, turns=turns, prompt=[Message("user", f"question secret-{number}")]
            )
            rollout = structs.replace(rollout, state={"goal_reached": not is_bad})
            labels = ("wrong_place",) if is_bad else ()
            score = structs.replace(record.score, labels=labels, reason=HOSTILE if is_bad else "as it should be")
            writer.append(structs.replace(record, rollout=rollout, score=score))
        if not is_open:
            writer.close()
    return path


def write_trial(path: Path, *events: dict, task: str = "arithmetic") -> Path:
    """A trial as far as its logs go."""
    (path / "events").mkdir(parents=True)
    config = {"agent": f"agents/{HOSTILE}", "task": {"name": task}, "seed": 0, "driver": None, "trial_id": path.name}
    (path / "trial.json").write_text(json.dumps(config))
    lines = [json.dumps({"t": 1000.0 + place, **event}) for place, event in enumerate(events)]
    (path / "events" / "trial.jsonl").write_text("".join(line + "\n" for line in lines))
    return path


def write_exchange(folder: Path, protocol: WireProtocol, request: object, answer: bytes, number: int = 1) -> None:
    """One more recorded call of an LLM."""
    recorder, none = ExchangeRecorder(folder, Scrubber([]), 1.0), TokenCounts()
    body = json.dumps(request).encode()
    recorder.append(
        CallStarted(number, float(number), protocol, "generate", "/v1", "m", "m", False, len(body), none, None)
    )
    recorder.write_request(number, body)
    end = CallEnded(number, 2.0 + number, "ok", 200, none, None, True, none, None, 1.0, None, 0, "", "json", 1)
    recorder.end(end, answer)
    recorder.close()


def write_exchanges(folder: Path) -> None:
    """Two recorded calls of an LLM: the first message of the user is hostile, and the model calls a tool."""
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "You train."},
        {"role": "user", "content": HOSTILE},
    ]
    for number, answer_text in ((1, "first answer"), (2, "second answer")):
        calls = [{"function": {"name": "bash", "arguments": "{}"}}]
        message = {"role": "assistant", "content": answer_text, "tool_calls": calls}
        answer = json.dumps({"choices": [{"message": message}]}).encode()
        write_exchange(folder, WireProtocol.OPENAI_CHAT, {"messages": messages}, answer, number)
        messages = [*messages, message, {"role": "tool", "content": f"output {number}"}]


def write_evaluation(folder: Path, out: Path) -> Path:
    """A finished evaluation on visible items."""
    folder.mkdir(parents=True, exist_ok=True)
    players = write_players(folder)
    sides = [find_checkpoint(f"scripted:{players}:{name}") for name in ("weak", "strong")]
    run_suite(SuiteRequest(make_suite(folder), *sides, out, find_benchmark=find_benchmark))
    write_eval_report(read_outcome(out), out)
    return out


def write_monitor(path: Path) -> Path:
    """The report of a training log with two series and one danger signal, with the points that are drawn."""
    path.mkdir(parents=True)
    points = {"kl": [[0, 0.1], [50, 0.2], [100, 9.0]], "reward": [[0, 0.0], [60, 0.9], [100, 1.0]]}
    series = {
        name: {
            "n_points": len(series_points),
            "first": series_points[0][1],
            "last": series_points[-1][1],
            "points": series_points,
        }
        for name, series_points in points.items()
    }
    signal = {"step": 60, "danger": "kl_spike", "series": ["kl"], "evidence": HOSTILE, "advice": "look"}
    report = {"log": "train.jsonl", "suite": "s", "last_step": 100, "training_action": "pause", "reasons": [HOSTILE],
              "signals": [signal], "series": series}  # fmt: skip
    (path / "monitor.json").write_text(json.dumps(report))
    return path


def digest_of_tree(root: Path) -> str:
    """Of every file below a folder."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def write_scores(path: Path, scores: dict[tuple[str, int], float | None], **header) -> Path:
    """A card with one rollout for each (item, attempt) of `scores`; `protocol`: changes of the protocol."""
    changes = header.pop("protocol", {})
    head = make_header(**header)
    attempts = 1 + max(attempt for _, attempt in scores)
    with CardWriter(path, replace(head, protocol=replace(head.protocol, attempts=attempts, **changes))) as writer:
        for (item, attempt), value in scores.items():
            writer.append(make_record(item, value, attempt))
        writer.close()
    return path


def client_of(folder: Path, **options) -> TestClient:
    """A client of the app over a folder; options: of `Site`."""
    app = make_view_app(Site(Catalog(folder), **options), ReaderGuard("127.0.0.1", None))
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


def id_of(catalog: Catalog, name: str, kind: EntryKind | None = None) -> str:
    """Id of the result in the folder of that name."""
    entries = catalog.scan().entries.values()
    return next(entry.id for entry in entries if entry.path.name == name and kind in (None, entry.kind))


def html_of(site: Site, kind: str, entry: str = "", part: str = "", /, **query: str) -> str:
    """A page of a site, with live links."""
    route = PageAddress(kind, entry, part, query)
    return site.html(route, LiveLinks(route))


def status_of(page: str) -> str:
    """The line of a page that tells how much was found."""
    return re.search(r'role="status">([^<]*)', page)[1]
