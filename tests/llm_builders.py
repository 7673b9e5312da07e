"""A driver that plays a script, and a small agent that speaks to it: for trials with an LLM and without a provider."""

import contextlib
import threading
import time

import uvicorn
import yaml

from agent2.llm.scripted_replies import Script
from agent2.llm.scripted_server import make_app

KEY_VARIABLE = "AGENT2_TEST_LLM_KEY"
KEY = "sk-real-0123456789abcdef-never-in-a-record"
MODEL = "scripted-1"

CHAT_AGENT = """
import json, os, subprocess, sys, httpx
schema = {"type": "object", "properties": {"command": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
messages = [{"role": "user", "content": open("ASSIGNMENT.md").read()}]
while True:
    body = {"model": "small-helper", "messages": messages, "tools": tools, "max_tokens": 100}
    headers = {"authorization": "Bearer " + os.environ["LLM_KEY"]}
    answer = httpx.post(os.environ["LLM_URL"] + "/v1/chat/completions", json=body, headers=headers, timeout=120)
    if answer.status_code != 200:
        sys.exit(f"the LLM said {answer.status_code}: {answer.text}")
    message = answer.json()["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        action = {"role": "assistant", "extra": {"actions": [{"command": command}]}}
        print(json.dumps({"messages": [action, {"role": "tool", "extra": {"returncode": ran.returncode}}]}), flush=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": ran.stdout + ran.stderr})
"""
"""Runs what the LLM asks for, and prints a record of it in the format of mini-swe-agent."""

TRAIN = """
import json, os, shutil, sys
import httpx, numpy as np
from safetensors.numpy import load_file, save_file
scale, out = SCALE, os.environ["OUTPUT_DIR"] + "/model-" + sys.argv[1]
shutil.copytree(os.environ["MODEL_PATH"], out)
rng = np.random.default_rng(0)
weights = load_file(out + "/model.safetensors")
trained = {name: w + scale * rng.normal(size=w.shape).astype(w.dtype) for name, w in weights.items()}
save_file(trained, out + "/model.safetensors", {"format": "pt"})
body = {"model_path": out, "note": "run " + sys.argv[1]}
print(httpx.post(os.environ["GRADING_SERVER_URL"] + "/submit", json=body, timeout=None).text)
"""
WRITE = "cat > code/train.py <<'END'\n" + TRAIN.replace("SCALE", "0.01") + "END"
CHANGE = "sed -i 's/0.01/0.02/' code/train.py && python code/train.py 2"

STEPS = [
    {"say": "I read.", "run": "head -n 3 ASSIGNMENT.md", "usage": {"input": 1000, "output": 40, "cached_input": 200}},
    {"say": "I write.", "run": WRITE, "usage": {"input": 1100, "output": 300, "reasoning": 100}},
    {"say": "I slip.", "run": "python code/trian.py", "usage": {"input": 1200, "output": 20}},
    {"say": "I train.", "run": "python code/train.py 1", "usage": {"input": 1300, "output": 20}},
    {"say": "I improve.", "run": CHANGE, "usage": {"input": 1400, "output": 30}},
    {"say": "Done.", "usage": {"input": 1500, "output": 10}},
]
"""Reads, writes a program, mistypes its name, trains, submits, changes the program, submits again."""
INPUT, CACHED, OUTPUT, REASONING = 7500, 200, 420, 100
"""Tokens of all steps."""
DOLLARS = (INPUT * 2 + OUTPUT * 8) / 1e6


@contextlib.contextmanager
def scripted_llm(steps=STEPS, app=None):
    """Serve a script on loopback; gives its address."""
    app = app or make_app(Script.model_validate({"model": MODEL, "steps": steps}), key=KEY)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(120)


def write_driver(folder, url, name="scripted", **changes):
    """A driver file for an address; the key comes from `KEY_VARIABLE`."""
    record = {
        "name": name,
        "model": MODEL,
        "provider": "test",
        "endpoints": {"openai-chat": f"{url}/v1"},
        "api_key_env": KEY_VARIABLE,
    }
    path = folder / f"{name.replace('/', '-')}.yaml"
    path.write_text(yaml.safe_dump(record | changes))
    return path


def write_prices(folder):
    """A price file that knows the scripted model: $2 and $8 for a million tokens."""
    path = folder / "prices.yaml"
    price = {"input": 2, "output": 8, "source": "a test"}
    path.write_text(yaml.safe_dump({"date": "2026-01-01", "models": {MODEL: price}}))
    return path


def write_chat_agent(folder, program=CHAT_AGENT, **changes):
    """An agent folder whose program is driven by an LLM."""
    folder.mkdir(parents=True)
    spec = {
        "name": folder.name,
        "description": "a test",
        "command": ["python", "/agent/main.py"],
        "llm": "openai-chat",
        "environment": {"LLM_URL": "{{llm_url}}", "LLM_KEY": "{{llm_key}}"},
        "transcript": {"format": "mini-swe-agent"},
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec | changes))
    (folder / "main.py").write_text(program)
    return folder
