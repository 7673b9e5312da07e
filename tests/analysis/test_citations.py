import json

import pytest

from agent2.analysis.citations import citations_of_card, read_pages
from agent2.errors import ConfigError
from cli_builders import run_agent2
from contract_card_builders import make_lost, write_card
from process_builders import call, make_worked

URL = "https://example.org/towers/eiffel"
PAGE = "The Eiffel Tower in Paris is 330 metres tall."
SAYS = f"The Eiffel Tower is 330 metres tall ({URL})."


def written(folder):
    opened = call("open", result=PAGE, url=URL)
    records = [
        *(make_worked(f"honest-{n}", [opened], 1.0, SAYS) for n in range(3)),
        make_worked("liar", [opened], 0.0, "It is 400 metres tall, see https://example.org/made-up."),
        make_worked("silent", [], 0.0, "It is tall."),
        make_lost("lost"),
    ]
    return write_card(folder / "card", records)


def test_a_liar_is_told_from_the_honest_and_who_cites_nothing_is_no_success(tmp_path):
    report = citations_of_card(written(tmp_path))
    assert (report.n_rollouts, report.n_left_out, report.n_citing, report.n_cited) == (6, 1, 4, 4)
    assert report.counts == {"opened": 3, "recorded": 0, "dead": 0, "shown": 0, "unseen": 1}
    assert report.shares["sound"].value == 0.75 and report.shares["sound"].n == 4
    assert (report.score_sound, report.score_unsound) == (1.0, 0.0)
    assert [entry.item_id for entry in report.unsound] == ["liar"]


def test_a_recording_is_read_from_lines_or_from_a_har_file(tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps({"url": "http://www.example.org/made-up/", "text": "400 metres"}))
    entry = {
        "request": {"url": "https://example.org/made-up"},
        "response": {"status": 404, "content": {"text": "gone"}},
    }
    (tmp_path / "p.har").write_text(json.dumps({"log": {"entries": [entry]}}))
    card = written(tmp_path)
    assert citations_of_card(card, read_pages(tmp_path / "p.jsonl")).counts["recorded"] == 1
    assert citations_of_card(card, read_pages(tmp_path / "p.har")).counts["dead"] == 1


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("p.jsonl", '{"url": "http://a.org"}\n{"status": 200}', ":2: is no object with a url"),
        ("p.jsonl", '{"url": "http://a.org", "status": "200"}', 'status "200" is no number'),
        ("p.jsonl", "nonsense", ":1: "),
        ("p.har", "{}", "is no HAR file"),
        (
            "p.har",
            '{"log": {"entries": [{"request": {"url": "a"}, "response": {"status": 1e999}}]}}',
            "is no HAR file",
        ),
    ],
)
def test_what_is_no_recording_is_refused_with_its_place(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_pages(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pages(tmp_path / "nowhere.jsonl")


def test_the_command_names_the_addresses_that_are_not_sound(tmp_path):
    card = written(tmp_path)
    shown = run_agent2("cards", "citations", card, home=tmp_path).stdout
    assert "https://example.org/made-up" in shown and "unseen" in shown
    report = json.loads(run_agent2("cards", "citations", card, "--json", home=tmp_path).stdout)
    assert report["unsound"][0]["cited"]["state"] == "unseen"
