import html
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import msgspec
import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd
from agent2.reports.headline import _gain_tile, headline, headline_facts, headline_fields, headline_tiles
from agent2.reports.pages import write_report
from agent2.stats.estimates import Estimate
from builders import (
    BASE_DIGEST,
    make_evidence,
    make_gain,
    make_metrics,
    make_process,
    make_rejected,
    make_revision,
    make_submission,
)

ATTACK = "<script>alert(1)</script>\x1b[31m<img src=x onerror=alert(1)>|`x`\u202e" + "A" * 5000


class Tags(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes = set(), []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


def written(tmp_path, **changes):
    evidence = make_evidence(**changes)
    return write_report(evidence, analyse(evidence), tmp_path / "report")


def hostile():
    return {
        "submissions": [
            make_rejected(1, ATTACK, model_path=ATTACK, note=ATTACK),
            make_submission(2, score=0.6, note=ATTACK),
        ],
        "agent_log_tail": f"Traceback (most recent call last):\n  {ATTACK}\nError: {ATTACK}\n",
        "revisions": [make_revision({f"code/{ATTACK[:60]}.py": "GRPOTrainer(m)\n", "bad.py": "("})],
        "processes": [make_process("python code/x.py"), make_process(f"python {ATTACK[:80]}", pid=9)],
        "metrics": make_metrics(ATTACK, [{"reward": 0.1}, {"reward": 0.2}]),
        "design": {"algorithm": ATTACK},
        "lock": {ATTACK[:40]: ATTACK},
    }


def test_all_files_are_written(tmp_path):
    paths = written(tmp_path)
    names = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert names == ["curves.svg", "report.html", "report.json", "report.md", "trajectory.svg"]
    assert [path.name for path in paths.figures] == ["trajectory.svg", "curves.svg"]


def test_the_json_holds_every_part_and_parses(tmp_path):
    record = json.loads(written(tmp_path, metrics=make_metrics("a", [{"reward": float("nan")}])).json.read_text())
    assert record["format"] == "agent2-report-2"
    parts = {
        "result",
        "process",
        "route",
        "submission_routes",
        "stages",
        "criteria",
        "failures",
        "efficiency",
        "changes",
    }
    assert parts <= record["analysis"].keys()
    assert record["analysis"]["result"]["gain"]["value"] == pytest.approx(0.28)
    assert record["trial"]["submissions"][0]["score"]["value"] == 0.6
    assert record["trial"]["task"]["name"] == "arithmetic"
    assert record["training_logs"][0]["last_values"] == {"reward": None}


def test_the_page_asks_the_network_for_nothing_and_runs_nothing(tmp_path):
    page = Tags(written(tmp_path).html.read_text())
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    loading = {"src", "href", "xlink:href", "data", "action", "srcset", "poster"}
    assert all(value.startswith("#") for _, name, value in page.attributes if name in loading)
    policy = next(
        value for tag, name, value in page.attributes if tag == "meta" and (value or "").startswith("default-src")
    )
    assert policy.startswith("default-src 'none'") and "script-src" not in policy


def test_hostile_text_stays_text_in_html(tmp_path):
    html = written(tmp_path, **hostile()).html.read_text()
    page = Tags(html)
    assert not page.tags & {"script", "img"}
    assert not any(name.startswith("on") for _, name, _ in page.attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", html)
    assert "A" * 1000 not in html
    assert "&lt;script&gt;" in html


def test_hostile_text_stays_text_in_markdown(tmp_path):
    text = written(tmp_path, **hostile()).markdown.read_text()
    assert not re.search(r"(?<!\\)<(script|img)", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    rows = [line for line in text.splitlines() if line.startswith("| 1 |")]
    cells = re.split(r"(?<!\\)\|", rows[0])
    assert len(cells) == 12  # ten cells between eleven unescaped bars


def test_an_unsandboxed_run_is_flagged_at_the_top_of_every_page(tmp_path):
    paths = written(tmp_path, sandbox="none")
    html, text = paths.html.read_text(), paths.markdown.read_text()
    assert html.index("without a sandbox") < html.index("base, public")
    assert 'class="note danger"' in html
    assert text.index("**WARNING.** The agent ran without a sandbox") < text.index("|---|")
    assert "NONE" in told(*_both(sandbox="none"))["sandbox"]


def told(evidence, analysis):
    return headline_fields(headline(evidence, analysis)).lines()


def test_the_json_headline_is_the_record_that_the_page_and_the_terminal_put_in_words(tmp_path):
    evidence, analysis = _both()
    record = headline(evidence, analysis)
    stored = json.loads(write_report(evidence, analysis, tmp_path / "r").json.read_text())["headline"]
    assert stored["result"]["gain"] == asdict(record.result.gain) and stored["base_public"] == asdict(
        record.base_public
    )
    assert msgspec.convert(stored["final_private"], Estimate) == record.final_private
    page = html.unescape((tmp_path / "r" / "report.html").read_text()).replace("<wbr>", "")
    value, _, detail = told(evidence, analysis)["gain on private items"].partition(" points ")
    assert f"<b>{value} points</b><span>{detail}</span>" in page


def test_the_page_of_a_trial_says_each_score_once_and_all_of_them(tmp_path):
    evidence, analysis = _both()
    page = html.unescape(written(tmp_path).html.read_text()).replace("<wbr>", "")
    head = page[: page.index("Scores over time")]
    rows = told(evidence, analysis)
    for name in ("base model, public items", "best submission, public items", "base model, private items"):
        score, _, rest = rows[name].partition(" ")
        assert head.count(f"<b>{score}</b><span>{rest}</span>") == 1 and rows[name] not in head
    assert head.count(rows["final, private items"].partition(" ")[2]) == 1
    assert rows["evaluation noise"] in head and "against the base</th>" not in head


def test_the_base_model_is_no_number_of_a_final_checkpoint_that_is_not_there():
    tile = headline_tiles(headline(*_both(submissions=[], final_submission=None)))[3]
    assert (tile.name, tile.value) == ("final, private", "–") and "the base model itself: no submission" in tile.detail
    assert headline_tiles(headline(*_both()))[3].value.endswith("%")


def test_what_is_no_measured_gain_is_a_tile_in_words_and_a_verdict_that_no_sentence_says_stays():
    gain = {
        "none: no submission (this is not a zero)": ("none", "no submission (this is not a zero)"),
        "0.0 points: a copy of the base, by weight digest": ("0.0 points", "a copy of the base, by weight digest"),
        "not measured": ("not measured", ""),
        "none: not cleared (measured: +3.1), a check did not come to its end": (
            "none", "not cleared (measured: +3.1), a check did not come to its end"
        ),
    }  # fmt: skip
    assert {words: (tile.value, tile.detail) for words in gain for tile in [_gain_tile(words)]} == gain
    copy = make_submission(1, score=0.3, is_base_copy=True, weights_digest=BASE_DIGEST)
    evidence, analysis = _both(submissions=[copy], final_submission=None)
    facts, rows = headline_facts(headline(evidence, analysis)).lines(), told(evidence, analysis)
    assert rows.keys() - facts.keys() == {
        "base model, public items", "best submission, public items", "base model, private items",
        "final, private items", "gain on private items",
    }  # fmt: skip


def _both(**changes):
    evidence = make_evidence(**changes)
    return evidence, analyse(evidence)


def test_the_headline_of_a_good_trial_says_all_that_is_asked():
    rows = told(*_both())
    assert rows["base model, public items"] == "30.0% [25.5, 34.5] (n = 400)"
    assert rows["final, private items"].startswith("58.0% [") and "submission 1" in rows["final, private items"]
    assert rows["gain on private items"] == "+28.0 points [+24.0, +32.0] over items, p = 0.0010, +93% of the base"
    assert rows["against the base"] == "better (interval, p-value and noise band agree)"
    assert rows["evaluation noise"] == "±3.0 points (the base model against itself, over items and sampling seeds)"
    assert rows["route"].startswith("RL only (GRPO)")
    assert rows["budget used"] == "2.5 min of 10.0 min (25.0%), 1 of 10 submissions"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            60.3,
            9.9,
            "60.3 of the base model, 9.9 of the final checkpoint, 16.4% as long: read some",
        ),
        (20.0, 90.0, "450.0% as long: read some"),
        (20.0, 0.0, "0.0% as long: read some"),
        (20.0, 39.0, "20.0 of the base model, 39.0 of the final checkpoint"),
        (None, 9.9, None),
        (0.0, 9.9, "0.0 of the base model, 9.9 of the final checkpoint"),
    ],
)
def test_answers_that_became_much_shorter_or_longer_are_to_be_read(before, after, words):
    rows = told(*_both(base_answer_tokens=before, final_answer_tokens=after))
    told_words = rows.get("tokens an answer, private items")
    assert told_words == words if words is None else words in told_words
    assert words is None or ("read some" in told_words) == ("read some" in words)


def test_a_gain_inside_the_band_is_called_noise():
    text = told(*_both(gain=make_gain(0.01)))["against the base"]
    assert text == "unclear (the interval contains 0, it is within the noise band)"


def test_no_submission_shows_the_base_in_words_and_no_zero(tmp_path):
    changes = {"submissions": [], "processes": [], "metrics": [], "revisions": [], "design": None}
    rows = told(*_both(**changes))
    assert rows["final, private items"] == "30.0% [26.3, 33.7] (n = 600), the base model itself: no submission"
    assert rows["gain on private items"] == "none: no submission (this is not a zero)"
    html = written(tmp_path, **changes).html.read_text()
    assert "<b>none</b>" in html and "<b>0.0 points</b>" not in html


def test_why_an_agent_crashed_is_said_and_of_one_that_did_not_nothing():
    log = "Traceback ...\n  File 'main.py', line 2\nKeyError: 'anser'\n\n"
    crashed = {"agent_end": AgentEnd.CRASHED, "agent_exit_code": 1, "agent_log_tail": log}
    assert told(*_both(**crashed))["last line of agent.log"] == "KeyError: 'anser'"
    assert "last line of agent.log" not in told(*_both(agent_log_tail=log))
    assert "last line of agent.log" not in told(*_both(**{**crashed, "agent_log_tail": " \n"}))


def test_a_copy_shows_a_zero_with_its_flag():
    copy = make_submission(1, score=0.3, is_base_copy=True, weights_digest=BASE_DIGEST)
    rows = told(*_both(submissions=[copy], final_submission=None))
    assert rows["gain on private items"] == "0.0 points: a copy of the base, by weight digest"
    assert rows["route"].startswith("copy of the base model")


def test_tables_of_many_rows_are_cut_and_say_so(tmp_path):
    processes = [make_process("python a.py", pid=n) for n in range(250)]
    assert "50 of 250 processes are left out here." in written(tmp_path, processes=processes).html.read_text()


def test_a_report_is_replaced_whole(tmp_path):
    first = written(tmp_path).html.read_text()
    assert written(tmp_path).html.read_text() == first
    assert not list((tmp_path / "report").glob(".*"))


def test_a_refused_submission_is_not_said_to_have_lost_against_the_base():
    rows = told(*_both(submissions=[make_rejected(1, "pickle weights")], final_submission=None))
    assert rows["final, private items"].endswith("the base model itself: no submission could be scored")
