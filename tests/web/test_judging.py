"""Judges and people, histories and training runs in the web app: what is shown, what is kept, what stays blind."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from agent2.cards.writer import CardWriter
from agent2.evaluation.spot_check import agreement, draw_sample
from agent2.records import Split, StopReason, Turn
from agent2.web.catalog import Catalog
from agent2.web.history import find_runs
from agent2.web.plots import PlotValue, histogram, panel
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import HOSTILE, write_card, write_evaluation, write_monitor

OWN = {"sec-fetch-site": "same-origin"}


def client_of(folder, **options):
    app = make_view_app(Site(Catalog(folder), **options), ReaderGuard("127.0.0.1", None))
    return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)


def id_of(folder, name):
    entries = Catalog(folder).scan().entries.values()
    return next(entry.id for entry in entries if entry.path.name == name)


def write_scores(path, scores, **header):
    """A card with one rollout for each (item, attempt) of `scores`; `protocol`: changes of the protocol."""
    changes = header.pop("protocol", {})
    head = make_header(**header)
    attempts = 1 + max(attempt for _, attempt in scores)
    with CardWriter(path, replace(head, protocol=replace(head.protocol, attempts=attempts, **changes))) as writer:
        for (item, attempt), value in scores.items():
            writer.append(make_record(item, value, attempt))
        writer.close()
    return path


def form_of(page):
    """The hidden fields of a spot check's page, and the numbers of its rollouts."""
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    return hidden, re.findall(r'id="r(\d+)"', page)


def test_two_people_rate_a_sample_blind_and_their_records_are_those_of_the_command(tmp_path):
    write_card(tmp_path / "one", n=40)
    client, card = client_of(tmp_path), id_of(tmp_path, "one")
    page = client.get(f"/spotcheck/{card}?n=6").text
    assert "goal_reached" not in page, "the final state may say what the scorer says"
    fields, numbers = form_of(page)
    assert len(numbers) == 6 and "as it should be" not in page and "score" not in page.partition("<form")[2]
    assert "<img src=x" not in page, "what a model wrote is escaped"
    verdicts = {rollout.number: rollout.said for rollout in draw_sample(tmp_path / "one", 6, 0).rollouts}
    for rater in ("Ada", "李雷"):
        form = fields | {"rater": rater} | {f"v{number}": verdicts[int(number)] for number in numbers}
        answer = client.post(f"/spotcheck/{card}", data=form, headers=OWN)
        assert answer.status_code == 303 and answer.headers["location"].endswith("/agreement")
        page_after = client.get(answer.headers["location"]).text
        assert ("before two people" in page_after) is (rater == "Ada"), "one rater's verdicts say nothing of a scorer"
    report = agreement(tmp_path / "one")
    assert set(report.raters) == {"Ada", "李雷"} and report.people.agreement.value == 1.0 and "1.000" in page_after
    again = form_of(client.get(f"/spotcheck/{card}?n=20").text)
    assert again == (fields, numbers), "the third rater gets the sample of the first"


@pytest.mark.parametrize(
    ("change", "message"),
    [({"v1": ""}, "1 of 6 rollouts have no verdict"), ({"v1": "great"}, "great"),
     ({"rater": "?!"}, "no rater is named"), ({"sample": "0" * 64}, "have changed"), ({"n": "x"}, "is not a number"),
     ({"rater": HOSTILE[:80], "v1": ""}, "no verdict")],
)  # fmt: skip
def test_ratings_that_are_not_kept_come_back_with_the_reason(tmp_path, change, message):
    write_card(tmp_path / "one", n=12)
    client, card = client_of(tmp_path), id_of(tmp_path, "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    form = fields | {"rater": "Ada"} | {f"v{number}": "right" for number in numbers}
    answer = client.post(f"/spotcheck/{card}", data=form | change, headers=OWN)
    assert answer.status_code == 422 and message in answer.text and "<img src=x" not in answer.text
    if "n" not in change:
        assert answer.text.count(" checked>") >= 5, "nobody rates twice because one verdict was missing"
    assert not (tmp_path / "one" / "spotcheck").exists()


def test_of_raters_who_send_at_once_one_is_kept_and_a_changed_card_is_said_at_once(tmp_path):
    write_card(tmp_path / "one", n=12)
    client, card = client_of(tmp_path), id_of(tmp_path, "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    rating_forms = [
        fields | {"rater": "Ada"} | {f"v{number}": verdict for number in numbers}
        for verdict in ("right", "wrong", "unsure", "right", "wrong", "unsure")
    ]
    with ThreadPoolExecutor(6) as pool:
        codes = list(
            pool.map(lambda sent: client.post(f"/spotcheck/{card}", data=sent, headers=OWN).status_code, rating_forms)
        )
    assert sorted(codes) == [303, 422, 422, 422, 422, 422]
    moved = (tmp_path / "one" / "spotcheck").rename(tmp_path / "kept")
    shutil.rmtree(tmp_path / "one")
    write_card(tmp_path / "one", n=13)
    moved.rename(tmp_path / "one" / "spotcheck")
    page = client.get(f"/spotcheck/{card}")
    assert "have changed since Ada judged them" in page.text and "<form" not in page.text


@pytest.mark.parametrize(
    ("change", "message"),
    [({"note2": "ü" * 1001}, "shorten that of rollout 2 (1,001)"), ({"rater": "A" * 81}, "has 81 characters")],
)
def test_a_note_or_name_that_is_too_long_is_refused_and_comes_back_whole(tmp_path, change, message):
    write_card(tmp_path / "one", n=12)
    client, card = client_of(tmp_path), id_of(tmp_path, "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    form = fields | {"rater": "Ada", "note1": "n" * 1000} | {f"v{number}": "right" for number in numbers}
    answer = client.post(f"/spotcheck/{card}", data=form | change, headers=OWN)
    assert answer.status_code == 422 and message in answer.text and not (tmp_path / "one" / "spotcheck").exists()
    assert all(f'value="{value}"' in answer.text for value in change.values()) and "n" * 1000 in answer.text
    assert client.post(f"/spotcheck/{card}", data=form, headers=OWN).status_code == 303
    (stored,) = (tmp_path / "one" / "spotcheck").iterdir()
    assert json.loads(stored.read_text())["notes"] == {"1": "n" * 1000}


def test_ratings_come_from_the_apps_own_pages_and_never_of_hidden_items_or_through_a_link(tmp_path):
    write_card(tmp_path / "one", n=12)
    write_card(tmp_path / "hidden", n=12, split=Split.TEST_PRIVATE)
    client = client_of(tmp_path)
    visible, hidden = id_of(tmp_path, "one"), id_of(tmp_path, "hidden")
    fields, numbers = form_of(client.get(f"/spotcheck/{visible}?n=6").text)
    form = fields | {"rater": "Ada"} | {f"v{number}": "right" for number in numbers}
    assert client.post(f"/spotcheck/{visible}", data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    page = client.get(f"/spotcheck/{hidden}?n=6").text
    assert "secret-" not in page and "--show-hidden" in page
    sample = draw_sample(tmp_path / "hidden", 6, 0)
    blind = {"sample": sample.digest, "n": "6", "seed": "0", "rater": "Ada"} | {f"v{n}": "right" for n in range(1, 7)}
    answer = client.post(f"/spotcheck/{hidden}", data=blind, headers=OWN)
    assert answer.status_code == 422 and "secret-" not in answer.text
    assert "secret-" in client_of(tmp_path, shows_hidden=True).get(f"/spotcheck/{hidden}?n=6").text
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "one" / "spotcheck").symlink_to(tmp_path / "elsewhere")
    assert client.post(f"/spotcheck/{visible}", data=form, headers=OWN).status_code == 422
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_judge_is_held_against_another_one_and_its_position_bias_is_said(tmp_path):
    side = {"checkpoint_name": "a", "checkpoint_digest": "d"}

    def judged(path, scorer, values):
        lock = {"judgement": {"new": side, "old": side, "settings": {}}}
        head = make_header(lock=lock)
        protocol = replace(head.protocol, scorer=scorer, attempts=1)
        with CardWriter(path, replace(head, protocol=protocol)) as writer:
            for number, value in enumerate(values):
                record = make_record(f"item-{number}", value)
                score = replace(
                    record.score, views={"first_shown_points": 1.0}, labels=("position_flip",) * (number < 2)
                )
                writer.append(replace(record, score=score))
            writer.close()

    judged(tmp_path / "strict", "strict-v1", [1.0, 0.0, 0.5, 1.0])
    judged(tmp_path / "kind", "kind-v1", [1.0, 1.0, 0.5, 1.0])
    write_card(tmp_path / "plain")
    client = client_of(tmp_path)
    text = client.get(f"/card/{id_of(tmp_path, 'strict')}").text
    assert "100.0% of the points (50% without bias); 2 of 4 verdicts turned" in text
    assert "3 of 4 verdicts are the same" in text and "old wins; new wins" in text
    (link,) = re.findall(r'href="(/rollout/[^"]*beside=[^"]*)"', text)
    assert client.get(link.replace("&amp;", "&")).status_code == 200
    assert "judged the same answers" not in client.get(f"/card/{id_of(tmp_path, 'plain')}").text


def test_attempts_have_a_histogram_and_notes_are_a_filter(tmp_path):
    scores = {("item", attempt): attempt % 3 / 2 for attempt in range(8)} | {
        ("other", attempt): 1.0 for attempt in range(8)
    }
    write_scores(tmp_path / "one", scores | {("other", 7): None})
    client, card = client_of(tmp_path), id_of(tmp_path, "one")
    text = client.get(f"/rollout/{card}/0").text
    bins = re.findall(r'<li><span>(\d+)<.*?class="muted">([\d.]+)<', text)
    assert bins == [("3", "0"), ("3", "0.5"), ("2", "1")]
    assert client.post(f"/note/{card}/3", data={"label": "odd"}, headers=OWN).status_code == 303
    for note, n in (("odd", 1), ("*", 1), ("even", 0), ("", 16)):
        assert f"{n} rollout" in client.get(f"/card/{card}?note={note}").text, note
    assert "odd (1)" in client.get(f"/card/{card}").text
    assert "next rollout of the list" not in client.get(f"/rollout/{card}/3?note=odd").text


def test_a_hidden_rollout_beside_another_tells_nothing_of_what_was_said(tmp_path):
    write_card(tmp_path / "one")
    head = make_header()
    with CardWriter(
        tmp_path / "hidden", replace(head, protocol=replace(head.protocol, split=Split.TEST_PRIVATE, attempts=1))
    ) as writer:
        record = make_record("item-001")
        call = Turn('{"name": "peek_at_vault", "arguments": {}}', "secret-1", StopReason.END, 10, 5)
        writer.append(replace(record, rollout=replace(record.rollout, turns=[call])))
        writer.close()
    hidden, visible = id_of(tmp_path, "hidden"), id_of(tmp_path, "one")
    for link in (
        f"/rollout/{visible}/1?beside={hidden}",
        f"/rollout/{hidden}/0?beside={visible}",
        f"/download/rollout/{visible}?part=1&beside={hidden}",
    ):
        text = client_of(tmp_path).get(link).text
        assert "peek_at_vault" not in text and "secret-1<" not in text.replace("question secret-1", ""), link
    assert "peek_at_vault" in client_of(tmp_path, shows_hidden=True).get(f"/rollout/{visible}/1?beside={hidden}").text


def test_a_history_says_what_fell_and_refuses_other_protocols(tmp_path):
    for place, n_right in enumerate((30, 38, 4)):
        scores = {(f"item-{number:02}", 0): float(number < n_right) for number in range(40)}
        write_scores(tmp_path / f"run-{place}", scores, created_at=100.0 + place, checkpoint_name=f"step-{place}")
    client = client_of(tmp_path)
    card = id_of(tmp_path, "run-2")
    (link,) = set(re.findall(r'href="(/history/[^"]*)"', client.get(f"/card/{card}").text))
    assert link in client.get(f"/card/{id_of(tmp_path, 'run-0')}").text, "one page for all cards of it"
    text = client.get(link).text
    assert ">worse</span>" in text and "34 items lost, 0 won" in text
    assert re.search(r'href="/rollout/[^"]*id=item-37[^"]*beside=', text)
    assert text.count("<circle") == 3 and text.index("step-2") < text.rindex("step-0")
    assert "-85.0" in text
    scores_of_other = {(f"item-{number:02}", 0): 1.0 for number in range(40)}
    write_scores(tmp_path / "run-3", scores_of_other, created_at=200.0, protocol={"max_turns": 9})
    text = client_of(tmp_path).get(link).text
    assert "cannot be compared" in text and "max_turns" in text and text.count('class="hollow"') == 3


def test_the_history_of_a_suite_reads_exact_values_and_older_reports_too(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    first = write_evaluation(tmp_path / "players", tmp_path / "results" / "first")
    report = json.loads((first / "report.json").read_text())
    name, rate = next((name, metric) for name, metric in report["evidence"].items() if metric["unit"] == "rate")
    for place, unit in enumerate(("rate", "number", None)):
        copy = shutil.copytree(first, tmp_path / "results" / f"later-{place}")
        changed_metric = {**rate, "new": 0.123456, "unit": unit}
        if unit is None:
            del changed_metric["unit"]
        changed = report | {name: "8.0% -> 12.3% (+4.3)", "evidence": {**report["evidence"], name: changed_metric}}
        (copy / "report.json").write_text(json.dumps(changed))
    catalog = Catalog(tmp_path / "results")
    entry = next(entry for entry in catalog.scan().entries.values() if entry.path == first)
    runs = {run.entry.path.name: run.metrics[name] for run in find_runs(catalog, entry, lambda card_entry: None)}
    assert runs["first"] == (rate["new"], True)
    assert [runs[f"later-{place}"] for place in range(3)] == [(0.123456, is_rate) for is_rate in (True, False, True)]
    (first / "report.json").write_text(json.dumps(report | {"evidence": {name: {"new": "lots"}}}))
    assert len(find_runs(Catalog(tmp_path / "results"), entry, lambda card_entry: None)) == 3, (
        "a damaged one hides no other"
    )


def test_a_training_run_has_series_signals_and_evaluations_on_one_axis(tmp_path):
    file = write_monitor(tmp_path / "monitor") / "monitor.json"
    write_scores(tmp_path / "cards" / "early", {("a", 0): 1.0, ("b", 0): 0.0}, checkpoint_name="run/checkpoint-50")
    write_scores(tmp_path / "cards" / "late", {("a", 0): 1.0, ("b", 0): 1.0}, checkpoint_name="run/checkpoint-100")
    write_scores(tmp_path / "cards" / "base", {("a", 0): 1.0, ("b", 0): 1.0}, checkpoint_name="base")
    text = client_of(tmp_path).get(f"/training/{id_of(tmp_path, 'monitor')}").text
    assert text.count("<svg") == 3 and "<img src=x" not in text
    first = text[text.index("<svg") :]
    assert first[: first.index("</svg>")].count("<circle") == 2, "the checkpoints, not the base model"
    assert text.count('class="mark"') == 1 and "kl spike" in text
    report = json.loads(file.read_text())
    for series in report["series"].values():
        del series["points"]  # as an older version wrote it
    file.write_text(json.dumps(report))
    text = client_of(tmp_path).get(f"/training/{id_of(tmp_path, 'monitor')}").text
    assert text.count("<svg") == 1 and "step" in text


def test_a_panel_breaks_its_line_at_a_missing_value_and_bins_hold_every_value():
    values = [PlotValue(0, 1.0), PlotValue(1, None), PlotValue(2, float("nan")), PlotValue(3, 3.0, (2.0, 4.0))]
    drawing = panel("p", values, marks=[(2.0, "here")])
    assert len(drawing.points) == 2 and drawing.path.count("M") == 2 and "L" not in drawing.path
    assert drawing.points[1].arm[0] > drawing.points[1].y > drawing.points[1].arm[1], "up is more"
    assert drawing.points[0].x < drawing.marks[0][0] < drawing.points[1].x
    assert panel("none", []).points == () and len(panel("one", [PlotValue(5, 0.0)]).y_ticks) >= 2
    many = panel("many", [PlotValue(place, place) for place in range(5_001)])
    assert len(many.points) <= 402 and many.points[-1].tooltip.startswith("5000")
    tenths = histogram([place / 10 for place in range(25)])
    assert [tenth_bin.n for tenth_bin in tenths] == [2] * 11 + [3], "a value on an edge is in the range that it begins"
    bins = histogram([place / 7 for place in range(100)])
    assert (
        sum(seventh_bin.n for seventh_bin in bins) == 100
        and len(bins) == 12
        and max(seventh_bin.share for seventh_bin in bins) == 100
    )
