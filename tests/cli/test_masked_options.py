"""`agent2 benchmarks mask`: a benchmark that is played like any other, and nothing over somebody's files."""

import json

from cli_builders import run_agent2 as agent2

OPTIONS = ["a red boat at sea", "two old coats of wool", "seven stones in water", "nine birds over hills"]


def test_a_masked_benchmark_is_sound_and_tells_who_knows_the_options(tmp_path):
    (tmp_path / "own").mkdir()
    rows = [
        {"question": f"Seen on day {n}?", "options": OPTIONS[n % 4 :] + OPTIONS[: n % 4], "answer": "A"}
        for n in range(20)
    ]
    (tmp_path / "own" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own" / "benchmark.yaml").write_text(
        'name: own\nversion: "1.0"\nfiles: {dev: dev.jsonl}\nprompt: "{question}\\n{options}"\n'
        "options: options\nanswer: answer\nscorer: choice\n"
    )
    ended = agent2("benchmarks", "mask", "./own", "--out", "masked", "--json", home=tmp_path)
    assert json.loads(ended.stdout) == {"benchmark": "masked", "form": "mask", "items": {"dev": 20}, "left_out": {}}
    (tmp_path / "players.py").write_text(
        f"OPTIONS = {OPTIONS}\n\n\ndef reader(chat):\n"
        "    return next(text for text in OPTIONS if text not in chat[-1].content)\n"
    )
    look = ("eval", "./masked", "--role", "dev", "--limit", "20", "--checkpoint", "scripted:players.py:reader")
    played = agent2(*look, "--out", "look", "--json", home=tmp_path)
    assert played.returncode == 0, played.stderr
    assert '"value": 1.0' in played.stdout
    again = agent2("benchmarks", "mask", "./own", "--out", "masked", home=tmp_path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    endless = agent2("benchmarks", "mask", "arithmetic", "--out", "other", home=tmp_path)
    assert (endless.returncode, (tmp_path / "other").exists()) == (2, False)
