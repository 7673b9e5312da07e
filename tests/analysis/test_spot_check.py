"""Spot checks on real cards: what people see, what is refused, and that lying scorers and careless raters are found."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from agent2.analysis.judge_check import read_pairs
from agent2.analysis.spot_check import agreement, draw_sample, form_text, record_form, spot_check_evidence
from agent2.cards.reader import iter_rollouts
from agent2.cards.writer import CardWriter
from agent2.cli import main
from agent2.errors import ConfigError
from agent2.evaluation.rescoring import judge_cards
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import find_checkpoint
from agent2.reports.pages import spot_check_page
from agent2.scorers import load_scorer
from card_builders import make_header, make_record
from spot_check_builders import fill_forms, filled, truth
from suite_fakes import find_benchmark, make_suite, write_players

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played")
    patch = pytest.MonkeyPatch()
    patch.setenv("AGENT2_HOME", str(folder / "home"))
    players = write_players(folder)
    sides = [find_checkpoint(f"scripted:{players}:{name}") for name in ("weak", "strong")]
    run_suite(SuiteRequest(make_suite(folder), *sides, folder / "e", find_benchmark=find_benchmark))
    yield folder / "e"
    patch.undo()


@pytest.fixture
def evaluation(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(finished, tmp_path / "e")


def write_card(folder, values, texts=None):
    with CardWriter(folder, make_header()) as writer:
        for number, value in enumerate(values):
            writer.append(make_record(f"item-{number:03}", value, text=texts[number] if texts else f"answer {number}"))
        writer.close()
    return folder


def test_the_draw_is_seeded_stratified_and_of_the_checkpoint_alone(evaluation):
    sample = draw_sample(evaluation, 30)
    assert sample == draw_sample(evaluation, 30) and len(sample.rollouts) == 30
    assert {rollout.card for rollout in sample.rollouts} == {"sums-dev", "doubles-dev"}
    for (card, verdict), on_card in sample.on_cards.items():
        n = sum((rollout.card, rollout.scorer_verdict) == (card, verdict) for rollout in sample.rollouts)
        assert abs(n - 30 * on_card / sum(sample.on_cards.values())) < 2 and n >= 2
    scores = {
        (card, record.rollout.item_id): record.score.value
        for card in ("sums-dev", "doubles-dev")
        for record in iter_rollouts(evaluation / "cards" / "checkpoint" / card)
    }
    assert all(scores[rollout.card, rollout.item_id] == rollout.score for rollout in sample.rollouts)
    reseeded = draw_sample(evaluation, 30, seed=1)
    assert {(rollout.card, rollout.item_id) for rollout in reseeded.rollouts} != {
        (rollout.card, rollout.item_id) for rollout in sample.rollouts
    }
    assert reseeded.digest != sample.digest


def test_a_rare_verdict_is_drawn_although_its_share_is_small(tmp_path):
    card = write_card(tmp_path / "card", [1.0] * 97 + [0.0] * 2 + [None])
    sample = draw_sample(card, 20)
    assert sum(rollout.scorer_verdict == "wrong" for rollout in sample.rollouts) == 2 and len(sample.rollouts) == 20
    assert sum(sample.on_cards.values()) == 99
    assert len(draw_sample(card, 1000).rollouts) == 99


def test_a_form_shows_neither_score_nor_scorer_and_holds_any_text(tmp_path):
    hostile = ["verdict: right\n  - number: 1", "\x00\x07 tab\t\n trailing  \n", "# x\n'\"&*!|>%@`", "", "é\u2028ü\r\n"]
    card = write_card(tmp_path / "card", [1.0, 0.0, 1.0, 0.0, 1.0], hostile)
    text = form_text(draw_sample(card, 5))
    form = yaml.safe_load(text)
    assert sorted(row["answer"] for row in form["rollouts"]) == sorted(hostile)
    assert set(form["rollouts"][0]) == {"number", "question", "answer", "verdict", "note"}
    assert "as the test says" not in text and "score" not in text.replace("the scorer's verdicts", "")


def test_careful_people_confirm_an_honest_scorer(evaluation, tmp_path):
    fill_forms(evaluation, tmp_path, ("Ada", "Ben"))
    report = agreement(evaluation)
    assert report.people.agreement.value == report.people.kappa.value == report.between.kappa.value == 1.0
    assert (report.disagreements, report.calibration) == ((), None)
    assert sum(stratum.n for stratum in report.strata) == 30
    check, note = spot_check_evidence(evaluation)
    assert (check.by, check.n, check.n_agree, note) == ("Ada and Ben", 30, 30, "")


def test_a_scorer_that_passes_wrong_answers_is_found_where_it_does(tmp_path):
    texts = ["good"] * 40 + ["bad"] * 20
    card = write_card(tmp_path / "card", [1.0] * 50 + [0.0] * 10, texts)  # ten bad ones pass
    fill_forms(card, tmp_path, ("Ada", "Ben"), lambda row: "right" if row["answer"] == "good" else "wrong", n=60)
    report = agreement(card)
    by_verdict = {stratum.said: (stratum.n_agree, stratum.n) for stratum in report.strata}
    assert by_verdict == {"right": (40, 50), "wrong": (10, 10)}
    assert {row["item"] for row in report.disagreements} == {f"item-{n:03}" for n in range(40, 50)}
    assert report.people.kappa.low < 40 / 60 * 0.9 and report.people.kappa.value < report.people.agreement.value


def test_a_rater_who_says_right_to_everything_agrees_often_and_is_worth_nothing(tmp_path):
    card = write_card(tmp_path / "card", [1.0] * 54 + [0.0] * 6, ["good"] * 54 + ["bad"] * 6)
    fill_forms(card, tmp_path, ("Ada",), lambda row: "right" if row["answer"] == "good" else "wrong", n=60)
    fill_forms(card, tmp_path, ("Lazy",), lambda row: "right", n=60)
    report = agreement(card)
    assert report.raters["Lazy"].agreement.value == 0.9 and report.raters["Lazy"].kappa.value == 0.0
    assert report.raters["Ada"].kappa.value == 1.0 and report.between.kappa.value == 0.0
    assert spot_check_evidence(card)[0].n_agree == 54  # where the raters differ, nobody confirms the scorer


def test_unsure_is_no_verdict_and_is_counted(evaluation, tmp_path):
    fill_forms(evaluation, tmp_path, ("Ada",), lambda row: "unsure" if row["number"] <= 10 else truth(row))
    fill_forms(evaluation, tmp_path, ("Ben",))
    report = agreement(evaluation)
    assert report.n_unsure == {"Ada": 10, "Ben": 0} and report.raters["Ada"].agreement.n == 20
    assert spot_check_evidence(evaluation)[0].n == 20


def test_the_threshold_that_people_use_is_found_for_graded_scores(tmp_path):
    values = [round(0.1 * (number % 11), 1) for number in range(110)]
    card = write_card(tmp_path / "card", values, [f"worth {value}" for value in values])
    fill_forms(card, tmp_path, ("Ada", "Ben"), lambda row: "right" if float(row["answer"][6:]) > 0.65 else "wrong", 110)
    fitted = agreement(card).calibration
    assert (fitted.passes_from, fitted.agreement, fitted.n) == (0.7, 1.0, 110)
    assert fitted.agreement_now == pytest.approx(9 / 11) and fitted.agreement_left_out == 1.0


def test_two_answers_are_shown_in_a_drawn_order_and_become_labelled_pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    n = 24
    old = write_card(tmp_path / "old", [0.0] * n, ["x" * (1 + number % 3) for number in range(n)])
    new = write_card(tmp_path / "new", [0.0] * n, ["y" * 2 for _ in range(n)])
    judge_cards(old, new, tmp_path / "judgement", load_scorer("longer_answer"))
    card = tmp_path / "judgement"
    sample = draw_sample(card, n)
    assert {rollout.is_swapped for rollout in sample.rollouts} == {True, False}

    def longer(row):
        first, second = len(row["first"]), len(row["second"])
        return "tie" if first == second else "first" if first > second else "second"

    fill_forms(card, tmp_path, ("Ada", "Ben"), longer, n)
    report = agreement(card)
    assert report.people.kappa.value == 1.0 and {stratum.said for stratum in report.strata} == {"new", "old", "tie"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["agent2", "spotcheck", "agreement", str(card), "--pairs", "pairs.jsonl"])
    with pytest.raises(SystemExit) as exited:
        main()
    assert not exited.value.code
    pairs = read_pairs(tmp_path / "pairs.jsonl")
    assert len(pairs) == n
    for pair in pairs:
        first, second = map(len, pair.answers)
        assert pair.label == (0.5 if first == second else float(first > second))


def spoiled(form, how):
    rows = form["rollouts"]
    if how == "half filled":
        for row in rows[15:]:
            row["verdict"] = None
    elif how == "no name":
        form["rater"] = "  "
    elif how == "unknown verdict":
        rows[3]["verdict"] = "rihgt"
    elif how == "yes":
        rows[3]["verdict"] = True
    elif how == "a row is gone":
        del rows[7]
    elif how == "twice":
        rows[7]["number"] = rows[6]["number"]
    elif how == "another text":
        rows[5]["answer"] = "a nicer answer"
    elif how == "unknown key":
        rows[2]["verdikt"] = "right"
    elif how == "another seed":
        form["seed"] = 1
    elif how == "few":
        form["n"] = 3
    return form


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("half filled", r"15 of 30 rollouts have no verdict \(numbers 16, 17"),
        ("no name", r"form\.yaml:\d+: names no rater"),
        ("unknown verdict", r"form\.yaml:\d+: unknown verdict 'rihgt'; did you mean 'right'\?"),
        ("yes", r"form\.yaml:\d+: unknown verdict 'true'"),
        ("a row is gone", r"1 of 30 rollouts have no verdict \(numbers 8\)"),
        ("twice", "one rollout of each number, not 7"),
        ("another text", r"form\.yaml:\d+: the answer of rollout 6 is not that of the card"),
        ("unknown key", r"unknown key 'rollouts\.2\.verdikt'; did you mean 'verdict'\?"),
        ("another seed", "about other rollouts than those of"),
        ("few", "at least 8 are needed"),
    ],
)
def test_a_form_that_is_not_whole_is_refused_in_one_line(evaluation, tmp_path, how, why):
    (tmp_path / "form.yaml").write_text(yaml.safe_dump(spoiled(filled(evaluation, "Ada"), how), sort_keys=False))
    with pytest.raises(ConfigError, match=why) as refused:
        record_form(tmp_path / "form.yaml", evaluation)
    assert "\n" not in str(refused.value)
    assert not (evaluation / "spotcheck").exists()


def test_forms_of_other_cards_of_one_rater_twice_and_of_two_draws_are_refused(evaluation, tmp_path):
    card = write_card(tmp_path / "card", [1.0, 0.0] * 20)
    (tmp_path / "form.yaml").write_text(yaml.safe_dump(filled(card, "Ada", lambda row: "right")))
    with pytest.raises(ConfigError, match="about other rollouts"):
        record_form(tmp_path / "form.yaml", evaluation)
    with pytest.raises(ConfigError, match="no form is recorded"):
        agreement(evaluation)
    fill_forms(evaluation, tmp_path, ("Ada",))
    with pytest.raises(ConfigError, match="only Ada has judged"):
        agreement(evaluation)
    for rater, seed, why in (("ADA ", 0, "has recorded a form already"), ("Ben", 1, "judged another sample")):
        (tmp_path / "form.yaml").write_text(yaml.safe_dump(filled(evaluation, rater, seed=seed)))
        with pytest.raises(ConfigError, match=why):
            record_form(tmp_path / "form.yaml", evaluation)
    with pytest.raises(ConfigError, match="neither a card nor an evaluation"):
        draw_sample(tmp_path)
    with pytest.raises(ConfigError, match="no rollout has a score"):
        draw_sample(write_card(tmp_path / "empty", [None] * 3))


def test_a_recorded_form_that_was_changed_or_damaged_does_not_count(evaluation, tmp_path):
    fill_forms(evaluation, tmp_path, ("Ada", "Ben"))
    file = evaluation / "spotcheck" / "ben.json"
    form_file = json.loads(file.read_text())
    file.write_text(json.dumps({**form_file, "verdicts": {"1": "right"}}))
    check, note = spot_check_evidence(evaluation)
    assert check is None and "was changed after it was recorded" in note
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"ben\.json: is not a recorded form"):
        spot_check_evidence(evaluation)


def test_the_page_needs_no_network_runs_one_script_and_escapes_what_is_judged(tmp_path):
    hostile = "</pre><script>document.title = 'taken'</script><img src=https://example.org/x>"
    card = write_card(tmp_path / "card", [1.0, 0.0], [hostile, "fine"])
    page = spot_check_page(draw_sample(card, 4))
    assert page.count("<script>") == 1 and "<img" not in page and "&lt;img" in page
    assert not re.search(r"(src|href)=", page.replace("&lt;img src=https://example.org/x&gt;", ""))
    if BROWSER is None:
        pytest.skip("no Chromium to fill the page in")
    answering = """<script>
      document.querySelectorAll('fieldset input[value=right]').forEach(one => one.click());
      document.getElementById('rater').value = 'Ada';
      document.body.textContent = form();
    </script>"""
    tested = re.sub(r'<meta http-equiv="Content-Security-Policy".*', "", page).replace("</body>", f"{answering}</body>")
    (tmp_path / "page.html").write_text(tested)
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", (tmp_path / "page.html").as_uri()]
    page_text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    saved = re.search(r"<body[^>]*>(.*)</body>", page_text, re.S)[1]
    (tmp_path / "ada.json").write_text(saved)
    assert record_form(tmp_path / "ada.json", card).name == "ada.json"


def test_the_commands_draw_record_and_compare(evaluation, tmp_path, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", "spotcheck", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    code, out, _ = run("draw", evaluation, "--out", "form.yaml")
    assert code == 0 and "scored wrong" in out and out.endswith("form: form.yaml\n")
    assert run("draw", evaluation, "--out", "form.html")[0] == 0
    for out_file, why in (("form.yaml", "already exists"), ("form.txt", "name a .yaml or .html file")):
        code, _, err = run("draw", evaluation, "--out", out_file)
        assert code == 2 and why in err
    for rater in ("Ada", "Ben"):
        form = yaml.safe_load((tmp_path / "form.yaml").read_text())
        rows = [{**row, "verdict": truth(row)} for row in form["rollouts"]]
        (tmp_path / f"{rater}.yaml").write_text(yaml.safe_dump({**form, "rater": rater, "rollouts": rows}))
        code, out, err = run("record", f"{rater}.yaml", evaluation)
        assert code == 0, err
    code, out, _ = run("agreement", evaluation)
    assert code == 0 and "Ada with the scorer (0 unsure)" in out and "1.0000" in out
    code, out, _ = run("agreement", evaluation, "--json")
    assert json.loads(out)["people"]["kappa"]["value"] == 1.0
    code, _, err = run("agreement", evaluation, "--pairs", "p.jsonl")
    assert code == 2 and "not a judgement of two cards" in err


def test_a_card_shows_its_scorer_and_what_people_say_of_it(tmp_path, monkeypatch, capsys):
    def shown():
        monkeypatch.setattr(sys, "argv", ["agent2", "cards", "show", str(card), "--n", "1"])
        with pytest.raises(SystemExit):
            main()
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    card = write_card(tmp_path / "card", [1.0, 0.0] * 20)
    assert make_header().protocol.scorer in shown() and "people" not in shown()
    fill_forms(card, tmp_path, ("Ada",), lambda row: "right")
    assert "the spot check does not count" in shown()
    fill_forms(card, tmp_path, ("Ben",), lambda row: "right")
    assert "Ada and Ben agree with the scorer on 15 of 30 rollouts" in shown()
