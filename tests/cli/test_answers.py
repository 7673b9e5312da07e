"""`agent2 score` as a user meets it."""

import json
import sys

import pytest

from agent2.cli import main


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums").mkdir()
    rows = [{"question": f"{k} + 1?", "sum": f"#### {k + 1}"} for k in range(30)]
    write(tmp_path / "sums" / "test.jsonl", rows)
    (tmp_path / "sums" / "benchmark.yaml").write_text(
        'name: sums\nversion: "1.0"\nfiles: {test: test.jsonl}\nprompt: "{question}"\nanswer: sum\n'
        "scorer: final_answer\n"
    )
    return tmp_path


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def answers(form, n=30):
    return [{"question": f"{k} + 1?", "outputs": {"model": form.format(k + 1)}} for k in range(n)]


def test_score_interval_missing_and_unread_are_printed_and_the_path_last(agent2, workplace):
    write(workplace / "tiny.jsonl", answers("#### {}"))
    code, out, err = agent2(
        "score", "./sums", "tiny.jsonl", "--answer", "outputs.model", "--name", "tiny", "--out", "c"
    )
    assert code == 0
    rows = {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in out.splitlines() if "  " in line}
    assert out.strip().splitlines()[-1] == "card: c"
    assert "1.0000 [0.8865, 1.0000]" in out
    assert "0.0% (0 of 30 rollouts)" in out
    assert "0.0% (0 of 30 answers)" in out
    assert "tiny" in rows.values() or "tiny" in out
    assert "warning" not in err


def test_a_high_rate_of_unread_answers_is_a_warning_that_quotes_one(agent2, workplace):
    write(workplace / "prose.jsonl", answers("The sum is\u0007 {}. " + "Really. " * 60))
    code, out, err = agent2("score", "./sums", "prose.jsonl", "--answer", "outputs.model")
    assert code == 0
    assert "100.0% (30 of 30 answers)" in out
    warning = next(line for line in err.splitlines() if line.startswith("warning"))
    assert "the scorer reads a line with the marker (####" in warning
    assert "was answered with 'The sum is" in warning
    assert "\a" not in warning
    assert len(warning) < 600


@pytest.mark.parametrize(("every", "is_warned"), [(3, True), (10, False)])
def test_stored_thoughts_that_never_end_are_a_warning_from_a_third_on(agent2, workplace, every, is_warned):
    rows = answers("<think>one more</think>#### {}")
    for row in rows[::every]:
        row["outputs"]["model"] = "<think>one more, or"
    write(workplace / "thoughts.jsonl", rows)
    code, _, err = agent2("score", "./sums", "thoughts.jsonl", "--answer", "outputs.model")
    assert code == 0
    assert (
        "in 10 of 30 rollouts the thought before the answer never ended, so they have no answer" in err
    ) is is_warned


def test_other_settings_of_the_scorer_read_another_marker(agent2, workplace):
    write(workplace / "other.jsonl", answers("A: {}"))
    _, out, _ = agent2(
        "score", "./sums", "other.jsonl", "--answer", "outputs.model", "--settings", 'marker="A: "', "--json"
    )
    result = json.loads(out)
    assert result["summary"]["score"]["value"] == 1.0
    assert result["unread"]["n_unread"] == 0
    header = json.loads((workplace / result["card"] / "card.json").read_text())["header"]
    assert header["protocol"]["judge_digest"]
    assert header["lock"]["stored_answers"]["settings"] == {"marker": "A: "}


def test_a_partial_file_says_what_its_score_is_if_the_rest_is_wrong(agent2, workplace):
    write(workplace / "half.jsonl", answers("#### {}", 15))
    code, _, err = agent2("score", "./sums", "half.jsonl", "--answer", "outputs.model")
    assert code == 2
    assert "15 of 30 items of sums have no answer" in err
    code, out, _ = agent2("score", "./sums", "half.jsonl", "--answer", "outputs.model", "--partial")
    assert code == 0
    assert "50.0% (15 of 30 rollouts)" in out
    assert "counting what is missing as wrong: 0.5000" in out


def test_a_wrong_split_names_the_right_ones(agent2, workplace):
    write(workplace / "a.jsonl", answers("#### {}"))
    code, _, err = agent2("score", "./sums", "a.jsonl", "--split", "test_publik")
    assert (code, "did you mean 'test_public'?" in err) == (2, True)


def test_cards_show_has_the_unread_answers_beside_the_score(agent2, workplace):
    write(workplace / "prose.jsonl", answers("It is {}."))
    agent2("score", "./sums", "prose.jsonl", "--answer", "outputs.model", "--out", "c")
    code, out, err = agent2("cards", "show", "c")
    assert code == 0
    assert "unread answers" in out and "100.0% (30 of 30 answers)" in out
    assert "was answered with 'It is" in err
