"""The worker in Chromium with pages of ours, some of them hostile; the package's own pages are played elsewhere."""

import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent2.benchmarks.bridges.channel import WORKERS
from browser_builders import find_chromium

pytestmark = pytest.mark.slow

PAGE = """<html><body><div id="query">Do it.</div>%s<script>
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0;
Math.seedrandom = function(seed) { document.getElementById('query').textContent += ' ' + seed; };
var core = {startEpisodeReal() {}, hideDisplay() {}, getUtterance() { return query.textContent; }};
function end(reward) { WOB_DONE_GLOBAL = true; WOB_RAW_REWARD_GLOBAL = reward; }
</script></body></html>"""
FORM = """<input aria-label="name" id="field"><select aria-label="size"><option>S</option><option>L</option></select>
<button onclick="end(field.value === 'Ada' ? 1 : -1)">Go</button>"""
HOSTILE = """<button onclick="
  window.open('about:blank'); alert('hello'); location.hash = 'x';
  fetch('ADDRESS').catch(() => {}); new Image().src = 'ADDRESS'; navigator.sendBeacon('ADDRESS');
  new WebSocket('ADDRESS'.replace('http', 'ws'));
  let link = document.createElement('a'); link.href = 'data:text/plain,x'; link.download = 'x'; link.click();
  end(0.5)">Go</button>"""
SCRIPT = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import miniwob_worker as worker
from unchanged import files_digest
worker._package = lambda: Path(sys.argv[2])
worker.PACKAGE_SHA256 = files_digest(Path(sys.argv[2]))
worker.FLAGS = tuple(flag for flag in worker.FLAGS if not flag.startswith("--host-resolver"))
worker.FLAGS += ("--disable-features=LocalNetworkAccessChecks",)  # which would keep requests from the server here
worker.PROGRAMS = (sys.argv[3],)
replies = []
for question in json.loads(sys.argv[4]):
    try:
        replies.append(worker.METHODS[question.pop("method")](portion="test", number=0, **question))
    except Exception as error:
        replies.append({"error": str(error)})
print(json.dumps(replies), flush=True)
os._exit(0)
"""


class Recorder(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def ask(tmp_path):
    """Asks the worker; its pages are `form` and `hostile`, which calls the server in `ask.paths`."""
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium was found on PATH: apt-get install chromium")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.paths = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    pages = tmp_path / "package" / "html" / "miniwob"
    pages.mkdir(parents=True)
    address = f"http://127.0.0.1:{server.server_port}/"
    pages.joinpath("form.html").write_text(PAGE % FORM)
    pages.joinpath("hostile.html").write_text(PAGE % HOSTILE.replace("ADDRESS", address))

    def run(*questions):
        package = str(tmp_path / "package")
        command = [sys.executable, "-c", SCRIPT, str(WORKERS), package, chromium, json.dumps(questions)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run.paths = server.paths
    yield run
    server.shutdown()
    thread.join()
    server.server_close()


def moves(*calls):
    return [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]


def score(name, played, prompt_sha256):
    return {"method": "score", "name": name, "moves": played, "prompt_sha256": prompt_sha256}


def test_the_same_moves_give_the_same_page_and_the_reward_of_the_page(ask):
    prompt = hashlib.sha256(b"form, seed 3000").hexdigest()
    fill = ("type", {"ref": "e3", "text": "Ada"})
    choose = ("select", {"ref": "e4", "option": "L"})
    go = ("click", {"ref": "e5"})
    opened, again, typed, chosen, wrong, unknown, right, empty, none = ask(
        {"method": "open", "name": "form"},
        {"method": "open", "name": "form"},
        {"method": "advance", "name": "form", "moves": moves(fill)},
        {"method": "advance", "name": "form", "moves": moves(fill, choose)},
        {"method": "advance", "name": "form", "moves": moves(("click", {"ref": "e99"}))},
        {"method": "advance", "name": "form", "moves": moves(("drag", {}), ("press", {"key": "F12"}))},
        score("form", moves(fill, choose, go), prompt),
        score("form", moves(go), prompt),
        score("form", moves(fill), prompt),
    )
    assert (
        opened == again and "Do it. 3000" in opened[1]["content"] and 'textbox "name" [ref=e3]' in opened[1]["content"]
    )
    assert "Ada" in typed["results"][0] and 'option "L" [selected]' in chosen["results"][0]
    assert wrong["results"][0].startswith("error: ") and not wrong["is_over"]
    assert unknown["results"][0].startswith("error: key is one of")
    assert [right["value"], empty["value"], none["value"]] == [1.0, 0.0, 0.0]
    assert "no reward within 1 messages" in none["reason"]


def test_words_twice_end_an_episode_without_a_reward(ask):
    once, twice = ask(
        {"method": "advance", "name": "form", "moves": [{"words": "Done."}]},
        {"method": "advance", "name": "form", "moves": [{"words": "Done."}, {"words": "Really."}]},
    )
    assert not once["is_over"] and once["user"].startswith("Call a function") and twice["is_over"]


def test_nothing_leaves_a_page_that_opens_windows_asks_for_downloads_and_calls_out(ask):
    (reply,) = ask({"method": "advance", "name": "hostile", "moves": moves(("click", {"ref": "e3"}))})
    assert reply["is_over"] and reply["results"] == ["done"]
    assert ask.paths == []
