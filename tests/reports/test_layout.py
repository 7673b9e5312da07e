"""What holds of every page: by its markup always, and in a browser where one is installed (Chromium)."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import monitor_builders
from agent2.analysis.outcome import read_outcome
from agent2.arena.analysis.result import analyse
from agent2.arena.sweep_records import row_of
from agent2.cli import app
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import find_checkpoint
from agent2.reports.eval_pages import write_eval_report
from agent2.reports.pages import write_report
from agent2.reports.sweep_pages import sweep_report, write_sweep_report
from builders import make_evidence, make_gain, make_rejected, make_submission
from suite_fakes import find_benchmark, make_suite, write_players

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((chromium_path for name in BROWSERS if (chromium_path := shutil.which(name))), None)
WIDTHS = (390, 820, 1280)
LONG = "output/a_very_long_name_of_a_folder/that_an_agent_made/" * 4 + "A" * 300

MEASURE = """
const found = [...document.querySelectorAll('iframe')].map(frame => {
  const page = frame.contentDocument, root = page.documentElement, broken = [];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const cell = node.parentElement;
    if (!cell.closest('td:not(.code), th, .verdict') || cell.closest('code, .code, .text')) continue;
    for (const word of node.data.matchAll(/[A-Za-z]{2,}/g)) {
      if (word[0].length > 24) continue;
      const range = page.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter(box => box.width > 0.5).map(box => Math.round(box.top)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }
  return {page: frame.title, width: frame.clientWidth, content: root.scrollWidth, broken};
});
document.body.textContent = JSON.stringify(found);
"""


def trial_page(folder):
    submissions = [make_submission(1, score=0.6, note=LONG), make_rejected(2, LONG, model_path=LONG)]
    evidence = make_evidence(submissions=submissions, lock={"model": {"revision": "0" * 64}})
    return write_report(evidence, analyse(evidence), folder).html


def sweep_page(folder):
    trials = [
        make_evidence(agent=agent, seed=int(seed), gain=make_gain(0.2)) for agent in ("grpo", "sft") for seed in (0, 1)
    ]
    rows = [row_of(trial, analyse(trial)) for trial in trials]
    rows.append(replace(rows[0], seed=2, state=f"failed: {LONG}"))
    return write_sweep_report(sweep_report(rows, []), folder).html


def eval_page(folder):
    players = write_players(folder)
    sides = [find_checkpoint(f"scripted:{players}:{name}") for name in ("weak", "strong")]
    run_suite(SuiteRequest(make_suite(folder), *sides, folder / "e", find_benchmark=find_benchmark))
    return write_eval_report(read_outcome(folder / "e"), folder / "e").html


def monitor_page(folder):
    log = monitor_builders.write_jsonl(folder / "log.jsonl", monitor_builders.reward_up_benchmark_down())
    CliRunner().invoke(app, ["monitor", str(log), "--suite", "llm_core_regression_v1", "--out", str(folder / "m")])
    return folder / "m" / "monitor.html"


@pytest.fixture
def pages(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    texts = {}
    for make in (trial_page, sweep_page, eval_page, monitor_page):
        folder = tmp_path / make.__name__
        folder.mkdir()
        texts[make.__name__] = make(folder).read_text()
    return texts


def measured(pages, folder):
    """Each page at each width, in frames: no script of a page runs, the frames' owner measures."""
    frames = "".join(
        f'<iframe title="{name}" style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in WIDTHS
    )
    file = folder / "frames.html"
    file.write_text(f"<!doctype html><body>{frames}<script>onload = () => {{{MEASURE}}}</script>")
    quiet = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
    command = [BROWSER, "--headless", *quiet, f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", file.as_uri()]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    return json.loads(html.unescape(re.search(r"<body>(.*)</body>", out, re.DOTALL)[1]))


def test_every_table_can_scroll_or_stack_and_no_cell_breaks_words(pages):
    for text in pages.values():
        style = text[text.index("<style>") : text.index("</style>")]
        assert not re.search(r"\btd\s*\{[^}]*anywhere", style) and not re.search(r"\bth[^{]*\{[^}]*width: \d+px", style)
        assert "prefers-color-scheme: dark" in style
        assert all('class="wide"' in tag or 'class="stack"' in tag for tag in re.findall(r"<table[^>]*>", text))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_no_page_is_wider_than_the_screen_and_no_word_is_broken(pages, tmp_path):
    opened = {name: text.replace("<details", "<details open") for name, text in pages.items()}
    narrow, wide = "max-width:20px;overflow-wrap:anywhere", "width:2000px"
    opened["control"] = f"<table><tr><td style='{narrow}'>evaluated<td><div style='{wide}'>x"
    measurements = measured(opened, tmp_path)
    assert {(measurement["page"], measurement["width"]) for measurement in measurements} == {
        (name, width) for name in opened for width in WIDTHS
    }
    for measurement in measurements:
        if measurement["page"] == "control":
            assert measurement["content"] > measurement["width"] and "evaluated" in measurement["broken"], (
                "the check sees both"
            )
        else:
            assert measurement["content"] <= measurement["width"] and measurement["broken"] == [], measurement
