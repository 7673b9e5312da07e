"""An engine for tests: a server process that behaves as it is told, started as an engine is."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from agent2.engines.catalogue import ENGINES, VLLM, InferenceEngine
from agent2.engines.environments import STAMP, InstalledEnvironment, engines_dir, pins_digest
from agent2.engines.sampler import EngineSampler, EngineSettings

PROGRAM = """
import json, os, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

if "describe" in sys.argv:  # as the server of llama.cpp does it, which reads the file
    from agent2.engines.llama_cpp_server import describe
    sys.stdout.write(json.dumps(describe(Path(sys.argv[-1]))))
    sys.exit()
folder = Path(sys.argv[sys.argv.index("serve") + 1])
key = os.environ.get("VLLM_API_KEY") or os.environ["LLAMA_CPP_SERVE_KEY"]
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
own = Path(__file__).parent
plan = json.loads((own / "plan.json").read_text())
state = own if os.access(own, os.W_OK) else Path(os.environ["HOME"])  # in the grader's sandbox
starts = len(list(state.glob("start-*")))
(state / f"start-{starts}").write_text(json.dumps({"argv": sys.argv, "pid": os.getpid(), "env": dict(os.environ)}))
phase = plan[min(starts, len(plan) - 1)]
lock, count = threading.Lock(), [0]
if phase == "dies at start":
    sys.exit("RuntimeError: out of memory")
if phase == "port taken":
    sys.exit("OSError: [Errno 98] address already in use")
if phase == "never ready":
    time.sleep(600)
name = "another" if phase == "other model" else flags["--served-model-name"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def send(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.send(200, {"data": [{"id": name}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != "Bearer " + key:
            return self.send(401, {"error": {"message": "wrong key"}})
        with lock:
            count[0] += 1
            number = count[0]
        text = body["messages"][-1]["content"]
        identity = "chatcmpl-" + self.headers["x-request-id"]
        if number > 1:  # the first is the question whether anybody answers
            if phase == "dies in the middle" and number > 3:
                print("torch.OutOfMemoryError: no memory", flush=True)
                os._exit(1)
            if phase == "hangs in the middle" and number > 3:
                self.send_response(200)
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices": [')
                self.wfile.flush()
                time.sleep(600)
            if phase == "fails all":
                return self.send(500, {"error": {"message": "EngineDeadError"}})
            if phase == "another answer" and number == 2:
                identity = "chatcmpl-somebody-elses"
        answer = f"{text}!"
        if phase in ("calculates", "dies in the middle") and text.startswith("Calculate "):
            answer = str(eval(text.removeprefix("Calculate ")))
        if phase == "looks around":
            answer = json.dumps({
                "interfaces": [name for _, name in socket.if_nameindex()],
                "writes": [str(path) for path in (folder, own, Path("/"), Path("/usr")) if os.access(path, os.W_OK)],
                "sees": [name for name in plan[1:] if os.path.exists(name)],
                "variables": sorted(os.environ),
                "weights": sorted(os.path.realpath(path) for path in folder.iterdir()),
            })
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
        if phase != "no log-probabilities" and body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": text, "logprob": -0.5, "top_logprobs": []}]}
        usage = {"prompt_tokens": 3, "completion_tokens": 1}
        self.send(200, {"id": identity, "choices": [choice], "usage": usage})


ThreadingHTTPServer(("127.0.0.1", int(flags["--port"])), Handler).serve_forever()
"""


def fake_engine(folder: Path, *phases: str, **settings: object) -> EngineSampler:
    """A sampler of an engine whose first, second, ... start behaves as said; the last one for all that follow."""
    _write_program(folder, phases)
    engine: InferenceEngine = replace(ENGINES[VLLM], module=())
    ready = InstalledEnvironment("vllm", "0.0", "digest", folder)
    given = EngineSettings(engine, "float32", program=[sys.executable, str(folder / "engine.py")])
    return EngineSampler(replace(given, **settings), ready, folder)


def starts(folder: Path) -> list[dict]:
    """What each start was given."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("start-*"))]


def install_fake_engine(*phases: str, digest: str | None = None, name: str = VLLM) -> Path:
    """An environment of an engine below the installation's home whose Python is that of this module; its folder."""
    folder = engines_dir() / name
    (folder / "bin").mkdir(parents=True)
    _write_program(folder, phases)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$(dirname "$0")/../engine.py" "$@"\n')
    python.chmod(0o755)
    stamp = {"name": name, "version": "0.0", "pins_digest": digest or pins_digest(ENGINES[name])}
    (folder / STAMP).write_text(json.dumps(stamp))
    return folder


def _write_program(folder: Path, phases: tuple[str, ...]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "engine.py").write_text(PROGRAM)
    (folder / "plan.json").write_text(json.dumps(phases or ["well"]))
