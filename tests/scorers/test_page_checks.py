"""Pages in a real Chromium: what each view sees, and hostile pages that harm themselves alone."""

import base64

import pytest
from PIL import Image

from agent2.errors import ConfigError, Fault
from agent2.evaluation.scoring import ScoringResources, score_played
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.page_checks import (
    PNG,
    VIEWS,
    PageChecksScorer,
    PageMeasures,
    missing_program,
    page_of,
    verdict,
    work_on,
    write_screenshots,
)

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
    write_screenshots(tmp_path / "shots", rollout_of("", "../item"), outcome)
    assert [path.name for path in (tmp_path / "shots").iterdir()] == [".._item-0-390.png"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="screenshots"):
        write_screenshots(tmp_path / "file", rollout_of(""), outcome)


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
    assert sizes == [(390, 900), (768, 900), (1280, 900)] and len(list(tmp_path.iterdir())) == 12
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


@pytest.mark.slow
def test_five_hostile_pages_end_with_a_reason_of_their_own_and_the_next_ones_are_unharmed(chromium):
    answers = [answer for script in HOSTILE.values() for answer in (page(script=script), page())]
    scores = scores_of(answers, processor_s=20.0, batch=10)
    for label, hostile, good in zip(HOSTILE, scores[::2], scores[1::2], strict=True):
        assert label in hostile.labels, hostile
        assert hostile.value == (1.0 if label == "page_calls_out" else 0.0), hostile
        assert good.value == 1.0 and good.labels == (), good
    assert "which was refused" in scores[6].reason
