"""A served judge that sees is shown the page beside its reference; judges that are blind, silent or silenced."""

import base64
import json

import pytest

from agent2.errors import ConfigError, Fault
from agent2.pictures import prepared, white_square
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers import asks_model, follows_rules, page_looks
from agent2.scorers.page_checks import PageMeasures
from agent2.scorers.page_looks import PageLooksJudge
from served_fakes import chat, endpoint, error

PAGE = "```html\n<p>Page</p>\n```"
SIDES = {"reference": 40, "good": 41, "bad": 42}
"""Sides of white squares in place of screenshots, by which a fake judge tells them apart."""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(page_looks, "missing_program", lambda: "")
    prepared.cache_clear()


def encoded(name):
    return base64.b64encode(white_square(SIDES[name])).decode()


def measured(name="good", **parts):
    layout = {"n_shown": 5, "screenshot": encoded(name)}
    page = PageMeasures(is_begun=True, is_complete=True, widths={1280: layout}, reference=encoded("reference"))
    for key, value in parts.items():
        setattr(page, key, value)
    return page


def scores_of(pages, url, monkeypatch, **settings):
    """The verdicts on pages that a browser would have measured so."""
    monkeypatch.setattr(page_looks.PageChecksScorer, "measure", lambda self, runner, works: pages)
    judge = PageLooksJudge(f"{url}#sees", endpoint={"max_tries": 1}, **settings)
    batch = []
    for number in range(len(pages)):
        payload = {"checks": [], "reference": {"index.html": "<p>"}}
        item = Item(f"item-{number}", Split.DEV, f"Build page {number}.", "", payload)
        batch.append((item, Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), PAGE, {}, Usage())))
    return judge.score_batch_on(None, batch)


def seen(body):
    """The names of the pictures that a request shows, in order, and its words."""
    parts = body["messages"][-1]["content"]
    if isinstance(parts, str):
        return [], parts
    by_address = {f"data:image/png;base64,{encoded(name)}": name for name in SIDES}
    names = [by_address.get(part["image_url"]["url"], "?") for part in parts if part["type"] == "image_url"]
    return names, "".join(part["text"] for part in parts if part["type"] == "text")


def test_the_judge_is_shown_the_reference_and_then_the_page_with_the_request(monkeypatch):
    def reply(body, number):
        names, _ = seen(body)
        return chat(f"So. {json.dumps({'verdict': 9 if names[-1:] == ['good'] else 2})}")

    with endpoint(reply) as served:
        good, bad = scores_of([measured("good"), measured("bad")], served.url, monkeypatch)
    assert (good.value, bad.value) == (0.9, 0.2) and good.views["judge_rating"] == 9.0 and good.labels == ()
    shown = [seen(body) for body in served.bodies if seen(body)[0] in (["reference", "good"], ["reference", "bad"])]
    assert len(shown) == 2, "the same words with other pictures are another question, also for the cache"
    for _, words in shown:
        assert words.index("asked for") < words.index("was built") < words.index("Build page") and "<image" not in words


def test_pages_that_show_nothing_hang_or_are_none_cost_no_call(monkeypatch):
    blank = measured(widths={1280: {"n_shown": 0, "screenshot": encoded("good")}})
    hung = measured(widths={}, trouble="it used 45 s of processor time", is_hung=True)
    with endpoint(lambda body, number: chat("no")) as served:
        scores = scores_of([blank, hung], served.url, monkeypatch)
    assert [score.value for score in scores] == [0.0, 0.0] and served.bodies == []
    assert [score.labels for score in scores] == [("page_blank",), ("page_hangs",)]


def test_a_page_that_silences_the_judge_is_wrong_and_a_judge_without_verdicts_is_missing(monkeypatch):
    def silent_on_bad(body, number):
        return chat("I cannot say." if seen(body)[0][-1:] == ["bad"] else '{"verdict": 10}')

    with endpoint(silent_on_bad) as served:
        (silenced,) = scores_of([measured("bad")], served.url, monkeypatch)
    assert silenced.value == 0.0 and silenced.labels == ("silenced_judge",)
    with endpoint(lambda body, number: chat("Nice.")) as served:
        (lost,) = scores_of([measured("bad")], served.url, monkeypatch, cache=False)
    assert lost.value is None and lost.fault is Fault.JUDGE and "nor is there a verdict" in lost.reason


def test_a_judge_that_does_not_see_is_said_and_gives_no_verdict(monkeypatch, tmp_path):
    def blind(body, number):
        return error(400, "image input is not supported") if seen(body)[0] else chat("hi")

    with endpoint(blind) as served:
        (score,) = scores_of([measured()], served.url, monkeypatch)
    assert score.value is None and score.fault is Fault.INFRASTRUCTURE and "refuses pictures" in score.reason
    with pytest.raises(ConfigError, match="needs the setting model"):
        PageLooksJudge()
    assert asks_model("page_looks") and not follows_rules("page_looks") and follows_rules("page_checks")
