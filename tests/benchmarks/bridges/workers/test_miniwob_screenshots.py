"""The worker that shows pictures, in Chromium with pages of ours; the package's own pages are played elsewhere."""

import base64
import hashlib
import io
import json
import subprocess
import sys

import pytest
from PIL import Image

from agent2.benchmarks.bridges.channel import WORKERS
from browser_builders import find_chromium

pytestmark = pytest.mark.slow

PAGE = """<html><body style="margin: 0"><div id="query">Click on A.</div>
<input id="field" style="position: absolute; left: 10px; top: 40px; width: 100px; height: 20px">
<button style="position: absolute; left: 10px; top: 100px; width: 40px; height: 30px" onclick="end(1)">A</button>
<button style="position: absolute; left: 90px; top: 100px; width: 40px; height: 30px" onclick="end(-1)">B</button>
<button style="position: absolute; left: 10px; top: 150px; width: 40px; height: 30px"
  onclick="end(field.value === 'Ada' ? 0.5 : 0)">C</button>
<div style="position: absolute; left: 0; top: 250px; width: 99px; height: 99px; background: #f00"></div><script>
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0;
Math.seedrandom = function(seed) {};
var core = {startEpisodeReal() {}, hideDisplay() {}, getUtterance() { return query.textContent; }};
function end(reward) { WOB_DONE_GLOBAL = true; WOB_RAW_REWARD_GLOBAL = reward; }
</script></body></html>"""
SCRIPT = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import miniwob_screenshots as worker
from unchanged import files_digest
worker.pages._package = lambda: Path(sys.argv[2])
worker.pages.PACKAGE_SHA256 = files_digest(Path(sys.argv[2]))
worker.pages.PROGRAMS = (sys.argv[3],)
replies = []
for question in json.loads(sys.argv[4]):
    try:
        replies.append(worker.METHODS[question.pop("method")](portion="test", number=0, **question))
    except Exception as error:
        replies.append({"error": str(error)})
print(json.dumps(replies), flush=True)
os._exit(0)
"""
TREE, SCREENSHOT, BOTH = "click-test", "click-test-screenshot", "click-test-both"


@pytest.fixture
def ask(tmp_path):
    """Asks the worker, whose page `click-test` is ours."""
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium was found on PATH: apt-get install chromium")
    folder = tmp_path / "package" / "html" / "miniwob"
    folder.mkdir(parents=True)
    folder.joinpath("click-test.html").write_text(PAGE)

    def run(*questions):
        package = str(tmp_path / "package")
        command = [sys.executable, "-c", SCRIPT, str(WORKERS), package, chromium, json.dumps(questions)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def moves(*calls):
    return [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]


def advance(*calls, name=SCREENSHOT):
    return {"method": "advance", "name": name, "moves": moves(*calls)}


def score(*calls):
    prompt = hashlib.sha256(b"click-test, seed 3000").hexdigest()
    return {"method": "score", "name": SCREENSHOT, "moves": moves(*calls), "prompt_sha256": prompt}


def picture(encoded):
    return Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")


def click(x, y):
    return "click", {"x": x, "y": y}


def test_clicks_by_coordinates_get_the_reward_of_the_page(ask):
    typed = [click(60, 50), ("type", {"text": "Ada"}), click(30, 165)]
    right, wrong, beside, written = ask(
        score(click(30, 115)), score(click(110, 115)), score(click(150, 20)), score(*typed)
    )
    assert [verdict["value"] for verdict in (right, wrong, beside, written)] == [1.0, 0.0, 0.0, 0.5]
    assert "no reward within 1 messages" in beside["reason"]


def test_what_a_call_gets_wrong_comes_back_as_words_and_the_episode_goes_on(ask):
    outside, negative, no_number, unknown, old, after = ask(
        advance(click(500, 115)),
        advance(click(-1, 10)),
        advance(click([], 10)),
        advance(("drag", {})),
        advance(("click", {"ref": "e3"})),
        advance(click(500, 115), click(30, 115)),
    )
    assert outside["results"] == [
        "error: (500, 115) is outside the picture of 160 x 210 pixels; x is 0 to 159 and y 0 to 209"
    ]
    assert negative["results"][0].startswith("error: (-1, 10) is outside the picture")
    assert no_number["results"][0].startswith("error: x is '[]'; give a number")
    assert "there are click, type, press, scroll" in unknown["results"][0] and "click takes x, y" in old["results"][0]
    assert not any(reply["is_over"] for reply in (outside, negative, no_number, unknown, old)) and after["is_over"]


def test_a_page_is_shown_as_a_picture_without_its_tree_or_with_it(ask):
    seen, again, both, scrolled, over = ask(
        {"method": "open", "name": SCREENSHOT},
        {"method": "open", "name": SCREENSHOT},
        {"method": "open", "name": BOTH},
        advance(("scroll", {"x": 80, "y": 80, "direction": "down"})),
        advance(click(30, 115)),
    )
    assert seen == again and "[ref=" not in seen[1]["content"] and "Click on A." in seen[1]["content"]
    opening = picture(seen[1]["pictures"][0])
    assert opening.size == (160, 210) and (255, 0, 0) not in {color for _, color in opening.getcolors(99_999)}
    assert 'button "A" [ref=' in both[1]["content"] and picture(both[1]["pictures"][0]).size == (160, 210)
    assert (255, 0, 0) in {color for _, color in picture(scrolled["pictures"][0]).getcolors(99_999)}
    assert over["is_over"] and "pictures" not in over


def test_a_set_of_another_observation_is_refused(ask):
    plain, unknown = ask({"method": "open", "name": TREE}, {"method": "open", "name": "no-such-task-screenshot"})
    assert plain == {"error": "there is no set click-test"} and "no-such-task" in unknown["error"]
