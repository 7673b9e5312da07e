"""Judges and raters in the web app: what is shown, what is stored, what stays blind."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from msgspec import structs

from agent2.analysis.spot_check import agreement, draw_sample
from agent2.cards.writer import CardWriter
from agent2.records import Split
from agent2.web.catalog import Catalog
from card_builders import make_header, make_record
from web_builders import (
    HOSTILE,
    OWN_PAGE,
    client_of,
    id_of,
    write_card,
)


def form_of(page):
    """The hidden fields of a spot check's page, and the numbers of its rollouts."""
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    return hidden, re.findall(r'id="r(\d+)"', page)


def test_two_people_rate_a_sample_blind_and_their_records_are_those_of_the_command(tmp_path):
    write_card(tmp_path / "one", n=40)
    client, card = client_of(tmp_path), id_of(Catalog(tmp_path), "one")
    page = client.get(f"/spotcheck/{card}?n=6").text
    assert "goal_reached" not in page, "the final state may say what the scorer says"
    fields, numbers = form_of(page)
    assert len(numbers) == 6 and "as it should be" not in page and "score" not in page.partition("<form")[2]
    assert "<img src=x" not in page, "what a model wrote is escaped"
    verdicts = {rollout.number: rollout.scorer_verdict for rollout in draw_sample(tmp_path / "one", 6, 0).rollouts}
    for rater in ("Ada", "李雷"):
        form = fields | {"rater": rater} | {f"v{number}": verdicts[int(number)] for number in numbers}
        answer = client.post(f"/spotcheck/{card}", data=form, headers=OWN_PAGE)
        assert answer.status_code == 303 and answer.headers["location"].endswith("/agreement")
        page_after = client.get(answer.headers["location"]).text
        assert ("before two people" in page_after) is (rater == "Ada"), "one rater's verdicts say nothing of a scorer"
    report = agreement(tmp_path / "one")
    assert set(report.raters) == {"Ada", "李雷"} and report.people.agreement.value == 1.0 and "100.0%" in page_after
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
    client, card = client_of(tmp_path), id_of(Catalog(tmp_path), "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    form = fields | {"rater": "Ada"} | {f"v{number}": "right" for number in numbers}
    answer = client.post(f"/spotcheck/{card}", data=form | change, headers=OWN_PAGE)
    assert answer.status_code == 422 and message in answer.text and "<img src=x" not in answer.text
    if "n" not in change:
        assert answer.text.count(" checked>") >= 5, "nobody rates twice because one verdict was missing"
    assert not (tmp_path / "one" / "spotcheck").exists()


def test_of_raters_who_send_at_once_one_is_kept_and_a_changed_card_is_said_at_once(tmp_path):
    write_card(tmp_path / "one", n=12)
    client, card = client_of(tmp_path), id_of(Catalog(tmp_path), "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    rating_forms = [
        fields | {"rater": "Ada"} | {f"v{number}": verdict for number in numbers}
        for verdict in ("right", "wrong", "unsure", "right", "wrong", "unsure")
    ]
    with ThreadPoolExecutor(6) as pool:
        codes = list(
            pool.map(
                lambda sent: client.post(f"/spotcheck/{card}", data=sent, headers=OWN_PAGE).status_code, rating_forms
            )
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
    client, card = client_of(tmp_path), id_of(Catalog(tmp_path), "one")
    fields, numbers = form_of(client.get(f"/spotcheck/{card}?n=6").text)
    form = fields | {"rater": "Ada", "note1": "n" * 1000} | {f"v{number}": "right" for number in numbers}
    answer = client.post(f"/spotcheck/{card}", data=form | change, headers=OWN_PAGE)
    assert answer.status_code == 422 and message in answer.text and not (tmp_path / "one" / "spotcheck").exists()
    assert all(f'value="{value}"' in answer.text for value in change.values()) and "n" * 1000 in answer.text
    assert client.post(f"/spotcheck/{card}", data=form, headers=OWN_PAGE).status_code == 303
    (stored,) = (tmp_path / "one" / "spotcheck").iterdir()
    assert json.loads(stored.read_text())["notes"] == {"1": "n" * 1000}


def test_ratings_come_from_the_apps_own_pages_and_never_of_hidden_items_or_through_a_link(tmp_path):
    write_card(tmp_path / "one", n=12)
    write_card(tmp_path / "hidden", n=12, split=Split.TEST_PRIVATE)
    client = client_of(tmp_path)
    visible, hidden = id_of(Catalog(tmp_path), "one"), id_of(Catalog(tmp_path), "hidden")
    fields, numbers = form_of(client.get(f"/spotcheck/{visible}?n=6").text)
    form = fields | {"rater": "Ada"} | {f"v{number}": "right" for number in numbers}
    assert client.post(f"/spotcheck/{visible}", data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    page = client.get(f"/spotcheck/{hidden}?n=6").text
    assert "secret-" not in page and "--show-hidden" in page
    sample = draw_sample(tmp_path / "hidden", 6, 0)
    blind = {"sample": sample.digest, "n": "6", "seed": "0", "rater": "Ada"} | {f"v{n}": "right" for n in range(1, 7)}
    answer = client.post(f"/spotcheck/{hidden}", data=blind, headers=OWN_PAGE)
    assert answer.status_code == 422 and "secret-" not in answer.text
    assert "secret-" in client_of(tmp_path, shows_hidden=True).get(f"/spotcheck/{hidden}?n=6").text
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "one" / "spotcheck").symlink_to(tmp_path / "elsewhere")
    assert client.post(f"/spotcheck/{visible}", data=form, headers=OWN_PAGE).status_code == 422
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
                score = structs.replace(
                    record.score, views={"first_shown_points": 1.0}, labels=("position_flip",) * (number < 2)
                )
                writer.append(structs.replace(record, score=score))
            writer.close()

    judged(tmp_path / "strict", "strict-v1", [1.0, 0.0, 0.5, 1.0])
    judged(tmp_path / "kind", "kind-v1", [1.0, 1.0, 0.5, 1.0])
    write_card(tmp_path / "plain")
    client = client_of(tmp_path)
    text = client.get(f"/card/{id_of(Catalog(tmp_path), 'strict')}").text
    assert "100.0% of the points (50% without bias); 2 of 4 verdicts turned" in text
    assert "3 of 4 verdicts are the same" in text and "old wins; new wins" in text
    (link,) = re.findall(r'href="(/rollout/[^"]*beside=[^"]*)"', text)
    assert client.get(link.replace("&amp;", "&")).status_code == 200
    assert "judged the same answers" not in client.get(f"/card/{id_of(Catalog(tmp_path), 'plain')}").text
