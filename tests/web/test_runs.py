"""Runs side by side: what is shared, what differs, curves overlaid, and what is not there."""

import json
import re

import pytest

from agent2.web.catalog import Catalog
from agent2.web.export import export_site
from agent2.web.home import HomeFilter
from agent2.web.page import NoSuchPageError
from agent2.web.runs import MOST_RUNS, chosen_ids
from agent2.web.site import Site
from web_builders import HOSTILE, client_of, html_of, id_of, write_card, write_monitor, write_scores, write_trial


def write_curves(path, **series) -> None:
    """The report of a training log with those series: name -> its points."""
    path.mkdir(parents=True)
    stored = {
        name: {"n_points": len(points), "first": points[0][1], "last": points[-1][1], "points": points}
        for name, points in series.items()
    }
    report = {"log": path.name, "suite": None, "last_step": 9, "training_action": "continue", "reasons": []}
    (path / "monitor.json").write_text(json.dumps(report | {"signals": [], "series": stored}))


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_curves(root / "short", **{"reward": [[0, 0.1], [10, 0.2]], "loss": [[0, 1.0], [10, 0.5]]})
    write_curves(root / "long", **{"reward": [[0, 0.1], [100, 0.9]], "optim/beta": [[0, 1.0], [100, 2.0]]})
    for name, n_right in (("one", 30), ("two", 12)):
        scores = {(f"item-{number:02}", 0): float(number < n_right) for number in range(40)}
        write_scores(root / name, scores, checkpoint_name=name)
    write_trial(root / "trial", {"event": "agent_started"})
    return root


def choice_of(results, *names: str) -> str:
    catalog = Catalog(results)
    return ",".join(id_of(catalog, name) for name in names)


def test_training_runs_are_overlaid_on_one_axis_with_one_tone_each(results):
    page = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "short", "long"))
    reward = re.search(r"<figcaption>reward</figcaption>.*?</figure>", page, re.DOTALL)[0]
    assert reward.count("<path") == 2 and '<g class="tone0">' in reward and '<g class="tone1">' in reward
    ends = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', reward)]
    assert ends[1] < ends[3], "10 steps are a tenth of 100 steps"
    assert page.index("<figcaption>reward") < page.index("<figcaption>loss"), "the reward is looked at first"
    assert "optim (1)" in page and "other series (1)" in page
    found = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "short", "long"), series="BETA")
    assert "beta</figcaption>" in found and "<figcaption>loss" not in found and "<figcaption>reward" in found


def test_scores_on_one_benchmark_stand_beside_each_other_and_lead_to_their_items(results):
    page = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "one", "two", "trial"))
    one, two = choice_of(results, "one").split(",") + choice_of(results, "two").split(",")
    assert f'href="/compare/{two}?with={one}"' in page and f"/compare/{one}?" not in page
    assert "75.0%" in page and "30.0%" in page
    settings = page[page.index("Settings that differ") :]
    assert "checkpoint" in settings and "protocol.split" not in settings, "what is the same is not listed"
    alone = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "one", "short"))
    assert "Scores on the same benchmark" not in alone and "None that these runs record" in alone


def test_an_address_of_runs_that_are_gone_damaged_or_too_many_says_so(results):
    site = Site(Catalog(results))
    with pytest.raises(NoSuchPageError, match="select two or more"):
        html_of(site, "runs", run="gone,gone-too")
    page = html_of(site, "runs", run=choice_of(results, "one") + ",gone")
    assert "1 run of this address is no longer in this folder" in page and "choose another" in page
    (results / "short" / "monitor.json").write_text('{"series": {"reward": {"points": [1, 2]}}}')
    page = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "short", "long"))
    assert "its curves cannot be read" in page and "<figcaption>reward" in page, "a damaged run hides no other"
    for number in range(MOST_RUNS + 2):
        write_card(results / f"card-{number}", checkpoint=f"model-{number}")
    names = [f"card-{number}" for number in range(MOST_RUNS + 2)]
    page = html_of(Site(Catalog(results)), "runs", run=choice_of(results, *names))
    assert f"{MOST_RUNS} runs side by side" in page and "2 more were chosen" in page
    assert chosen_ids({"run": "b,a,b,"}) == ["b", "a"]


def test_what_a_run_contains_is_escaped(results):
    write_trial(results / "second", {"event": "agent_started"}, task=HOSTILE)
    write_monitor(results / "third")
    page = html_of(Site(Catalog(results)), "runs", run=choice_of(results, "trial", "second", "third"))
    assert "<img src=x" not in page and "<script>document" not in page


def test_the_form_of_the_home_page_selects_runs_that_the_address_keeps(results):
    client = client_of(results)
    first, second = choice_of(results, "short", "long").split(",")
    page = client.get(f"/runs?run={first}&run={second}")
    assert page.status_code == 200 and "2 runs side by side" in page.text
    back = re.search(r'href="(/\?run=[^"]+)"', page.text)[1]
    home = client.get(back).text
    assert home.count(" checked") == 2 and f'value="{first}" aria-label="select training log short" checked' in home
    assert client.get("/runs").status_code == 404
    filtered = client.get(f"/?kind=card&run={first}").text
    assert (
        f'<input type="hidden" name="run" value="{first}">' in filtered and "1 run selected on another page" in filtered
    )
    assert HomeFilter.of({"run": "a,b,a"}).query()["run"] == "a,b"
    assert client.get(f"/download/runs?run={first}&run={second}").text.count("tone1") > 0


def test_the_trend_of_a_training_is_its_reward_and_an_exported_site_selects_nothing(results, tmp_path):
    page = html_of(Site(Catalog(results)), "home", kind="training")
    assert page.count('class="spark"') == 2
    assert 'class="spark"' not in html_of(Site(Catalog(results)), "home", kind="card"), "a card has no course"
    export_site(Site(Catalog(results)), tmp_path / "out")
    exported = (tmp_path / "out" / "index.html").read_text()
    assert "checkbox" not in exported and "Side by side" not in exported
