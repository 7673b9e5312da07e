"""Tabs of a trial: resources of its processes, transcript and log, files with numbered lines, links to evidence."""

import json
import shutil

import pytest

from agent2.arena.recorder import RevisionRecorder
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.llm.messages import CallPart, ChatAnswer, TextPart, ThoughtPart
from agent2.llm.protocols import FORMATS
from agent2.llm.records import WireProtocol
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site
from agent2.web.trials import (
    _file_diff,
    evidence_anchor,
    loads_of,
    log_after,
    log_tail,
    revision_diffs,
    source_anchor,
    timeline_of,
    transcript_of,
)
from gateway_fakes import sse
from web_builders import (
    HOSTILE,
    write_exchange,
    write_exchanges,
    write_trial,
)


@pytest.fixture
def trial(tmp_path):
    """A trial of 100 seconds whose agent ran two programs."""
    path = write_trial(tmp_path / "trial", {"event": "agent_started"}, {"event": "agent_ended", "t": 1100.0})
    rows = [
        {"event": "process", "t": 1060.0, "pid": 7, "command": ["python", HOSTILE], "first_seen": 1000.0,
         "last_seen": 1050.0, "cpu_s": 100.0, "max_rss_bytes": 2**30},
        {"event": "process", "t": 1100.0, "pid": 8, "command": ["sh"], "first_seen": 1025.0, "last_seen": 1100.0,
         "cpu_s": 0.0, "max_rss_bytes": 2**30},
    ]  # fmt: skip
    (path / "events" / "processes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "agent").mkdir()
    (path / "agent" / "main.py").write_text(f"import os\n\nprint({HOSTILE!r})\n")
    (path / "agent" / "weights.bin").write_bytes(b"\0\1")
    return path


def page_of(folder, part):
    site = Site(Catalog(folder))
    (entry,) = (entry for entry in site.catalog.scan().entries.values() if entry.kind is EntryKind.TRIAL)
    return site.html(PageAddress("trial", entry.id, part), LiveLinks())


def test_processor_and_memory_are_on_the_axis_of_time(trial):
    cpu, memory = loads_of(TrialPaths(trial), 1000.0, 1100.0)
    assert (cpu.peak, memory.peak) == ("up to 2.0 cores", "up to 2.00 GiB")
    assert [share for share, _ in cpu.steps] == [100.0] * 60 + [0.0] * 60
    assert [share for share, _ in memory.steps] == [50.0] * 30 + [100.0] * 30 + [50.0] * 60
    assert loads_of(TrialPaths(trial), 2000.0, 2100.0) == ()
    page = page_of(trial.parent, "timeline")
    assert 'class="track load"' in page and 'id="process-7"' in page and "100 s of CPU" not in page
    assert "1.7 min of CPU, 1.00 GiB" in page


def test_phases_are_on_the_axis_and_that_of_a_running_trial_reaches_until_now(trial):
    lanes = dict(timeline_of(TrialPaths(trial)).lanes)
    assert [(bar.left, bar.width, bar.tooltip) for bar in lanes["phases"]] == [
        (0.0, 100.0, "0.0 s: agent phase, 1.7 min"), (100.0, 0.0, "1.7 min: submissions evaluated")
    ]  # fmt: skip
    running = timeline_of(TrialPaths(trial), now=1200.0)
    assert [(bar.left, bar.width) for bar in dict(running.lanes)["phases"]] == [(0.0, 50.0), (50.0, 50.0)]
    assert running.ticks[-1] == (100.0, "3.3 min")


def test_processes_of_the_sandbox_are_folded_and_never_left_out(trial):
    log = trial / "events" / "processes.jsonl"
    own = [["bwrap", "--args", "23"], ["/run/agent2/python", "-I", "-S", "/run/agent2/forward.py", "26"]]
    rows = [
        {"event": "process", "t": 1100.0, "pid": 20 + n, "command": command, "first_seen": 1000.0, "last_seen": 1100.0}
        for n, command in enumerate([*own, ["python", "forward.py"], []])
    ]
    log.write_text(log.read_text() + "".join(json.dumps(row) + "\n" for row in rows))
    timeline = timeline_of(TrialPaths(trial))
    assert [anchor for *_, anchor in timeline.sandbox_rows] == ["process-20", "process-21"]
    assert len(dict(timeline.lanes)["processes"]) == 4, "the agent's two, one of a like name, one without a command"
    page = page_of(trial.parent, "timeline")
    assert page.index("Processes of the sandbox itself (2)") < page.index('id="process-20"')


def test_a_call_whose_price_is_not_known_says_what_is_not_known(trial):
    write_exchanges(TrialPaths(trial).llm)
    texts = [text for _, lane, text, *_ in timeline_of(TrialPaths(trial)).rows if lane == "LLM calls"]
    assert texts and all("cost unknown" in text or "$" in text for text in texts)


def test_a_damaged_log_of_processes_leaves_the_other_lanes(trial):
    (trial / "events" / "processes.jsonl").write_text('{"event": "process", "t": 1.0, "first_seen": "soon"}\n')
    timeline = timeline_of(TrialPaths(trial))
    assert timeline.loads == () and any(lane == "events" for lane, _ in timeline.lanes)
    assert any("resources" in problem for problem in timeline.problems)


def test_a_damaged_repository_of_revisions_is_named_and_the_program_is_shown(trial):
    (trial / "events" / "revisions.jsonl").write_text('{"event": "revision", "t": 1010.0, "id": "' + "a" * 40 + '"}\n')
    (trial / "revisions.git").mkdir()
    diffs, sources, problems = revision_diffs(TrialPaths(trial))
    assert (diffs, problems) == ([], ["revisions.git: cannot be read"])
    assert [source.path for source in sources] == ["/agent/main.py"]


def test_nothing_outside_the_folder_is_shown_through_a_link(trial, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "private.json").write_text('"a private word"')
    (trial / "agent.log").symlink_to(outside / "private.json")
    shutil.rmtree(trial / "agent")
    (trial / "agent").symlink_to(outside)
    pages = [page_of(trial.parent, part) for part in ("", "timeline", "transcript", "code")]
    assert not any("a private word" in page for page in pages)
    assert log_after(trial / "agent.log", 0) == ("", 0)
    (trial / "agent.log").unlink()
    (trial / "agent.log").write_text("an own word\n")
    assert "an own word" in page_of(trial.parent, "transcript") and log_after(trial / "agent.log", 3) == (
        "own word",
        12,
    )


def test_a_new_file_has_its_lines_and_no_place_and_what_a_library_writes_is_folded():
    new = _file_diff("code/train.py", None, "a\nb\n", 100)
    assert (new.change, new.n_added, [line.text for line in new.lines]) == ("new file", 2, ["+a", "+b"])
    changed = _file_diff("code/train.py", "a\nb\n", "a\nc\n", 100)
    assert (changed.change, changed.n_added, changed.n_removed) == ("", 1, 1)
    assert changed.lines[0].kind == "place"
    assert not new.is_folded and _file_diff("output/model/config.json", None, "{}\n", 100).is_folded
    assert _file_diff("code/long.py", None, "a\n" * 121, 1000).is_folded


def test_an_emptied_file_is_not_called_removed_nor_an_empty_new_one():
    emptied, removed = (_file_diff("x.py", "a\n", after, 100) for after in ("", None))
    assert (emptied.change, emptied.n_removed) == ("emptied", 1)
    assert (removed.change, removed.n_removed) == ("removed", 1)
    assert _file_diff("x.py", None, "", 100).change == "new file"
    assert _file_diff("x.py", "", "a\n", 100).change == ""
    assert _file_diff("x.py", "a" * 300_000, None, 100).change == "removed"


def test_revisions_tell_a_file_that_was_emptied_from_one_that_was_removed(trial):
    paths = TrialPaths(trial)
    (paths.workspace / "code").mkdir(parents=True)
    first, second = (paths.workspace / "code" / name for name in ("a.py", "b.py"))
    recorder = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log))
    for file in (first, second):
        file.write_text("1\n")
    recorder.capture()
    first.write_text("")
    second.unlink()
    recorder.capture()
    recorder.close()
    diffs, _, problems = revision_diffs(paths)
    assert problems == [] and [(file.path, file.change) for file in diffs[-1].files] == [
        ("code/a.py", "emptied"),
        ("code/b.py", "removed"),
    ]


def test_a_transcript_without_calls_says_whether_the_agent_has_an_llm(trial):
    assert "This agent has no LLM of its own" in page_of(trial.parent, "transcript")
    config = json.loads((trial / "trial.json").read_text()) | {"driver": "scripted"}
    (trial / "trial.json").write_text(json.dumps(config))
    assert "No call to the agent&#39;s LLM was recorded" in page_of(trial.parent, "transcript").replace(
        "&#x27;", "&#39;"
    )


def test_the_agents_program_is_shown_with_numbered_lines_and_never_as_markup(trial):
    diffs, sources, problems = revision_diffs(TrialPaths(trial))
    assert (diffs, problems) == ([], []) and [source.path for source in sources] == ["/agent/main.py"]
    page = page_of(trial.parent, "code")
    assert f'id="{source_anchor("/agent/main.py")}-L3"' in page and "<img" not in page


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("process 18649", ("timeline", "process-18649")),
        ("submission 2", ("timeline", "submission-2")),
        ("events/trial.jsonl", ("timeline", "")),
        ("llm/exchanges.jsonl: call 12", ("transcript", "c12")),
        ("agent.log", ("transcript", "agent-log")),
        ("/agent/main.py:34", ("code", f"{source_anchor('/agent/main.py')}-L34")),
        ("output/design.json: algorithm", ("code", source_anchor("output/design.json"))),
        ("output/train_log.jsonl", None),
        ("grader.db", None),
        ('x"><script>', None),
    ],
)
def test_evidence_leads_to_the_page_that_shows_it(where, place):
    assert evidence_anchor(where) == place


def test_a_transcript_has_each_message_once(tmp_path):
    paths = TrialPaths(tmp_path)
    write_exchanges(paths.llm)
    transcript = transcript_of(paths)
    turns = [(turn.role, turn.text) for turn in transcript.turns]
    assert [role for role, _ in turns] == ["system", "user", "assistant", "tool", "assistant"]
    assert (
        turns[2][1] == "first answer\n(no arguments)" and "second answer" in turns[-1][1] and "\x1b" not in turns[1][1]
    )


@pytest.mark.parametrize("protocol", list(WireProtocol))
def test_a_streamed_answer_reads_like_a_whole_one(tmp_path, protocol):
    wire_format = FORMATS[protocol]
    answer = ChatAnswer((ThoughtPart("Which?"), TextPart("I look around."), CallPart("bash", {"n": 1})))
    whole = json.dumps(wire_format.build_answer({}, answer)).encode()
    texts = []
    for body in (whole, sse(*wire_format.build_events({}, answer), done=wire_format.ends_with_done), b"<html>busy"):
        folder = TrialPaths(tmp_path / str(len(texts)))
        write_exchange(folder.llm, protocol, {"messages": "not a list"}, body)
        sent, received = transcript_of(folder).turns
        assert (sent.role, sent.text) == ("user", '{"messages": "not a list"}')
        texts.append(received.text.replace(": ", ":"))
    assert texts == [*["Which?\nI look around.\nn:1"] * 2, "<html>busy"]


def test_of_a_log_that_grows_every_line_is_read_once(tmp_path):
    log = tmp_path / "agent.log"
    assert log_after(log, 0) == ("", 0)
    log.write_bytes(b"one\ntwo\nthr")
    assert log_tail(log, 4) == "one" and log_after(log, 4) == ("two", 8)
    log.write_bytes(b"x" * 100_000 + b"\nend\n")
    text, place = log_after(log, 8)
    assert text.endswith("end") and len(text) < 21_000 and place == 100_005
