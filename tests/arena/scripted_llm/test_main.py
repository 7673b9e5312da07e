"""The server as a process, as tests of agents start it."""

import subprocess
import sys

import httpx
import pytest

from scripted_llm_builders import KEY, scripted_upstream


@pytest.mark.slow
def test_it_serves_a_packaged_script_on_a_free_port_and_insists_on_the_key(tmp_path):
    body = {"model": "m", "messages": [{"role": "user", "content": "a title, please"}]}
    with scripted_upstream(tmp_path, "arithmetic") as upstream:
        url = f"{upstream.url}/v1/chat/completions"
        assert httpx.post(url, json=body).status_code == 401
        answer = httpx.post(url, json=body, headers={"authorization": f"Bearer {KEY}"}).json()
        assert answer["usage"]["prompt_tokens"] == 9
        assert [row["status"] for row in upstream.served()] == [401, 200]
        assert KEY not in upstream.log.read_text()


@pytest.mark.slow
def test_a_bad_script_ends_it_with_one_sentence(tmp_path):
    script = tmp_path / "script.yaml"
    script.write_text("steps: []\n")
    command = [sys.executable, "-m", "agent2.arena.scripted_llm", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "script.yaml:1: steps:" in done.stderr
    assert "Traceback" not in done.stderr
