"""Pages in a real Chromium: what each view sees, and hostile pages that harm themselves alone."""

import base64
import io
import itertools
from types import SimpleNamespace

import pytest
from PIL import Image

from agent2.errors import ConfigError, Fault
from agent2.evaluation.scoring import ScoringResources, score_played
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.sandbox.backends import ContainedEnd, EndedBy
from agent2.scorers import page_runner
from agent2.scorers.page_checks import (
    PNG,
    VIEWS,
    PageChecksScorer,
    PageMeasures,
    missing_program,
    page_of,
    screenshot_name,
    verdict,
    work_on,
    write_screenshots,
)
from agent2.scorers.page_runner import Report, _in_words

HEAD = """<!doctype html>
<html lang="en"><head><meta name="viewport" content="width=device-width, initial-scale=1"><title>Page</title></head>"""
BODY = """<body><main><h1>Page</h1><label for="name">Name</label> <input id="name">
<button id="go">Greet</button><p id="out"></p></main>"""
SCRIPT = """document.getElementById("go").addEventListener("click", () => setTimeout(() => {
  document.getElementById("out").textContent = "Hello " + document.getElementById("name").value;
}, 300));"""
CHECKS = [
    {"name": "it greets", "steps": [["fill", "#name", "Bo"], ["click", "#go"], ["expect_text", "#out", "Hello Bo"]]},
    {"name": "it is silent at first", "steps": [["expect_hidden", "#out"]]},
]


def page(script=SCRIPT, body=BODY, head=HEAD):
    return f"{head}{body}<script>{script}</script></body></html>"


def item_of(name="item", reference=None, checks=CHECKS):
    payload = {"parts": ["h1", "#name", "#go"], "checks": checks, "reference": reference}
    return Item(id=name, split=Split.DEV, prompt="Greet.", reference="", payload=payload)


def rollout_of(answer, name="item"):
    return Rollout(name, 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())


def scores_of(answers, reference=None, **settings):
    """The scores of pages that one scorer opens, one after the other."""
    played = [
        (item_of(f"item-{number}", reference), rollout_of(answer, f"item-{number}"))
        for number, answer in enumerate(answers)
    ]
    records = score_played(played, PageChecksScorer(**settings), ScoringResources())
    by_item = {record.rollout.item_id: record.score for record in records}
    return [by_item[item.id] for item, _ in played]


@pytest.fixture
def chromium():
    if problem := missing_program():
        pytest.skip(problem)


def measured(**parts):
    """A page that was measured whole and is good, but for these parts."""
    layout = {"laid_out": 0, "content": 0, "n_cut": 0, "n_shown": 5, "placed": ["", "", ""], "n_elements": 20}
    good = PageMeasures(is_begun=True, is_complete=True, likeness=1.0)
    good.widths = dict.fromkeys((390, 768, 1280), layout)
    good.load = {"n_bytes": 900, "load_ms": 20.0, "busy_ms": 30.0}
    good.axe = {"passes": ["label", "region"], "violations": []}
    good.unmet = {0: None, 1: None}
    for name, value in parts.items():
        setattr(good, name, value)
    return good


def verdict_on(outcome, answer=None):
    return verdict(work_on(item_of(reference={"index.html": page()}), page_of(answer or page())), outcome)


def test_a_page_that_holds_everything_has_one_in_each_of_the_six_views_which_are_not_added_up():
    score = verdict_on(measured())
    assert score.value == 1.0 and {score.views[view] for view in VIEWS} == {1.0} and score.labels == ()


def test_views_fall_one_by_one_and_leave_the_score_to_the_function():
    layout = measured().widths[390]
    cases = {
        "accessibility": measured(axe={"passes": ["label"], "violations": [{"id": "region", "n": 1}]}),
        "visual": measured(likeness=0.4),
        "responsive": measured(widths={**measured().widths, 390: {**layout, "laid_out": 980}}),
        "performance": measured(load={"n_bytes": 200_000, "load_ms": 20.0, "busy_ms": 30.0}),
        "code": measured(errors=["x is not defined"]),
    }
    for view, outcome in cases.items():
        score = verdict_on(outcome)
        assert score.value == 1.0 and {name for name in VIEWS if score.views[name] < 1} == {view}, view
    broken = verdict_on(measured(unmet={0: 'expect_text #out: it is "", not "Hello Bo"', 1: None}))
    assert broken.value == 0.0 and broken.views["function"] == 0.5 and "it greets" in broken.reason


def test_axe_that_could_not_be_loaded_is_not_measured_and_no_pass():
    score = verdict_on(measured(axe={"error": "axe is not installed"}))
    assert score.views["accessibility"] is None and "accessibility was not measured" in score.reason


def test_a_page_that_keeps_axe_from_looking_is_not_accessible():
    score = verdict_on(measured(axe={"error": "document.querySelectorAll is not a function", "is_of_page": True}))
    assert score.views["accessibility"] == 0.0 and "page_inaccessible" in score.labels


def test_messages_of_the_browsers_protocol_are_said_in_plain_words():
    lost = RuntimeError("Protocol error (Runtime.evaluate): Execution context was destroyed.")
    assert _in_words(lost) == "it went to another page while it was looked at"
    assert _in_words(RuntimeError("Target page, context or browser has been closed")) == "the browser ended"
    assert _in_words(ValueError("something else\nof two lines")) == "something else"


class Stalled(Exception):
    """In place of the end of the program."""


def test_a_page_that_keeps_its_browser_waiting_is_ended_and_one_that_works_is_not(monkeypatch):
    clock = itertools.count(step=page_runner.STALL_S / 4)
    monkeypatch.setattr(page_runner, "time", SimpleNamespace(sleep=lambda s: None, monotonic=lambda: next(clock)))

    def ended_after(used, **changes):
        report = Report(io.StringIO())
        report.page, report.begun_at, report.begun_with_s = 0, 0.0, 0.0
        reasons = []
        report.give_up = lambda reason, is_hung: reasons.append(reason) or (_ for _ in ()).throw(Stalled)
        monkeypatch.setattr(page_runner, "processor_seconds", used)
        with pytest.raises(Stalled):
            report.watch(1e4)
        return reasons[0]

    assert "kept its browser waiting" in ended_after(lambda: 0.0)
    busy = itertools.count(step=2 * page_runner.STALL_PROCESSOR_S)
    assert "it took" in ended_after(lambda: next(busy)), "a page that works is given its time"


def test_a_page_without_reference_has_no_visual_view():
    assert verdict(work_on(item_of(), page_of(page())), measured()).views["visual"] is None


def test_what_was_not_reached_did_not_hold():
    score = verdict_on(PageMeasures(is_begun=True, trouble="it used 12 s of processor time", is_hung=True))
    assert score.value == 0.0 and {score.views[view] for view in VIEWS if view != "code"} == {0.0}
    assert "page_hangs" in score.labels and "processor time" in score.reason


def test_a_blank_page_is_neither_responsive_nor_accessible_nor_light():
    layout = {**measured().widths[390], "n_shown": 0}
    score = verdict_on(measured(widths=dict.fromkeys((390, 768, 1280), layout)))
    assert {score.views[view] for view in VIEWS} == {0.0} and "page_blank" in score.labels


def test_an_answer_without_a_page_is_wrong_and_needs_no_browser():
    scores = scores_of(["", "I cannot do that.", "```css\np {}\n```", page() + " " * 600_000])
    assert [score.value for score in scores] == [0.0] * 4 and {score.labels for score in scores} == {("page_missing",)}


def test_an_item_without_checks_has_no_verdict(chromium):
    score = PageChecksScorer().score_batch_on(None, [(item_of(checks=[]), rollout_of(page()))])[0]
    assert score.value is None and score.fault is Fault.JUDGE


def test_without_a_browser_a_score_is_missing_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr("agent2.scorers.page_checks.PROGRAMS", ())
    score = PageChecksScorer().score_batch_on(None, [(item_of(), rollout_of(page()))])[0]
    assert score.value is None and score.fault is Fault.INFRASTRUCTURE and "install" in score.reason


@pytest.mark.parametrize("settings", [{"processor_s": 0}, {"batch": 0}, {"batch": True}])
def test_settings_that_open_no_page_are_refused(settings):
    with pytest.raises(ConfigError, match="page_checks"):
        PageChecksScorer(**settings)


def test_the_files_of_an_answer_are_its_last_blocks():
    answer = (
        "```html\nold\n```\nText\n```html\nnew\n```\n```css\np {}\n```\n```javascript\ngo()\n```\n```python\n1\n```"
    )
    assert page_of(answer) == {"index.html": "new\n", "style.css": "p {}\n", "script.js": "go()\n"}
    assert page_of("<html>") == {"index.html": "<html>"} and page_of("words") == {}


def test_screenshots_are_written_by_item_and_what_is_none_is_left_out(tmp_path):
    layout = measured().widths[390]
    pictures = {390: PNG + b"x", 768: b"GIF89a", 1280: b""}
    outcome = measured(
        widths={width: {**layout, "screenshot": base64.b64encode(pictures[width]).decode()} for width in pictures}
    )
    outcome.reference = base64.b64encode(PNG + b"y").decode()
    write_screenshots(tmp_path / "shots", "../item", 0, outcome)
    names = {path.name for path in (tmp_path / "shots").iterdir()}
    assert names == {screenshot_name("../item", 0, "390"), screenshot_name("../item", 0, "reference")}
    assert all(name.startswith(".._item~") for name in names)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="screenshots"):
        write_screenshots(tmp_path / "file", "item", 0, outcome)


@pytest.mark.slow
def test_pages_are_told_apart_in_the_browser(chromium, tmp_path):
    careless = page(
        head="<!doctype html><html><head><title>Page</title></head>",
        body='<body><div style="width: 1400px"><h1>Page</h1>Name <input id="name"><button id="go">Greet</button>'
        '<p id="out"></p></div>',
    )
    lying = page(script="Object.defineProperty(HTMLElement.prototype, 'innerText', {get: () => 'Hello Bo'})")
    good, silent, wide, liar = scores_of(
        [page(), page(script=""), careless, lying], reference={"index.html": page()}, screenshots=tmp_path
    )
    sizes = [Image.open(tmp_path / f"item-0-0-{width}.png").size for width in (390, 768, 1280)]
    assert sizes == [(390, 900), (768, 900), (1280, 900)] and len(list(tmp_path.iterdir())) == 16
    assert good.value == 1.0 and {good.views[view] for view in VIEWS} == {1.0}, good
    assert silent.value == 0.0 and silent.views["function"] == 0.5 and silent.views["responsive"] == 1.0
    assert wide.value == 1.0 and wide.views["responsive"] == 0.0, wide
    assert 0 < wide.views["accessibility"] < 1 and 0 < wide.views["code"] < 1 and wide.views["visual"] < 1
    assert liar.value == 0.0 and "it greets" in liar.reason, "a page can't answer for itself"


HOSTILE = {
    "page_hangs": "while (true) {}",
    "page_opens_windows": "setInterval(() => window.open('about:blank'), 5)",
    "page_asks_for_downloads": """setInterval(() => { const link = document.createElement("a");
link.href = URL.createObjectURL(new Blob(["x"])); link.download = "x.bin"; link.click(); }, 5)""",
    "page_calls_out": """for (const url of ["http://169.254.169.254/", "http://127.0.0.1:22/", "file:///etc/passwd"]) {
  fetch(url).catch(() => {}); new Image().src = url; }
new WebSocket("ws://example.invalid/"); navigator.sendBeacon("https://example.invalid/", "x");"""
    + SCRIPT,
    "page_crashes": "const rest = []; while (true) rest.push(new Array(1e6).fill(rest.length))",
}


COUNTING = """addEventListener("pagehide", () => { localStorage.n = sessionStorage.n = window.name = "1"; });
document.getElementById("out").textContent = "Hello " + [window.name, localStorage.n, sessionStorage.n, document.cookie,
  history.length].join("|");"""
CASES = {
    "reloads itself": (page("location.reload()"), 0.0, "it loads itself again and again", "page_hangs"),
    "asks before it is left": (
        page(SCRIPT + 'addEventListener("beforeunload", (event) => event.preventDefault());'),
        1.0,
        "2 of 2 checks hold",
        None,
    ),
    "counts its loads": (page(COUNTING), 0.0, 'it is "Hello |||', "page_check_failed"),
    "names an element as a function of the document": (
        page(body=BODY.replace("<main>", '<main><form name="querySelectorAll"></form>')),
        1.0,
        "2 of 2 checks hold",
        None,
    ),
    "covers its button": (
        page(body=BODY.replace("<main>", '<main><div style="position: fixed; inset: 0"></div>')),
        0.0,
        "something covers it",
        "page_check_failed",
    ),
}


@pytest.mark.slow
def test_pages_that_play_with_the_checker_gain_nothing_and_are_named_in_plain_words(chromium):
    scores = scores_of([answer for answer, *_ in CASES.values()], processor_s=60.0)
    for name, score in zip(CASES, scores, strict=True):
        _, value, words, label = CASES[name]
        assert score.value == value and words in score.reason, (name, score)
        assert label is None or label in score.labels, (name, score)
    assert "page_hangs" not in scores[4].labels, "a button that is covered is no page that hangs"


def killed(broke=None):
    reason = "it broke its limit" if broke else "the program ended with status 137"
    return ContainedEnd(EndedBy.ITSELF, 137, b"", 0, broke, reason)


def test_a_page_whose_browser_others_killed_is_opened_once_more_and_blamed_only_for_the_second_kill(monkeypatch):
    ended = ContainedEnd(EndedBy.ITSELF, 0, b"", 0, None, "the program ended with status 0")
    # The kills: with the second page begun, with it begun again; then the third page, at the memory limit.
    ends = iter([(killed(), 2), (killed(), 1), (killed("memory"), 1), (ended, 1)])
    n_asked = []

    def open_pages(self, runner, works):
        n_asked.append(len(works))
        end, n_begun = next(ends)
        begun = [measured() for _ in range(n_begun)]
        if end is not ended:
            begun[-1].is_complete = False
        return end, begun + [PageMeasures() for _ in works[n_begun:]]

    monkeypatch.setattr(PageChecksScorer, "_open_pages", open_pages)
    first, second, third, fourth = PageChecksScorer().measure(None, [{}, {}, {}, {}])
    assert n_asked == [4, 3, 2, 1]
    assert [page.is_crashed for page in (first, second, third, fourth)] == [False, True, True, False]
    assert second.trouble == "the program ended with status 137"


@pytest.mark.slow
def test_five_hostile_pages_end_with_a_reason_of_their_own_and_the_next_ones_are_unharmed(chromium):
    answers = [answer for script in HOSTILE.values() for answer in (page(script=script), page())]
    scores = scores_of(answers, processor_s=20.0, batch=10)
    for label, hostile, good in zip(HOSTILE, scores[::2], scores[1::2], strict=True):
        assert label in hostile.labels, hostile
        assert hostile.value == (1.0 if label == "page_calls_out" else 0.0), hostile
        assert good.value == 1.0 and good.labels == (), good
    assert "which was refused" in scores[6].reason
