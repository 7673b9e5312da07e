import sys
from types import MappingProxyType

import pytest

from agent2 import plugins
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.plugins import build, failing_line, find, load, place_of, relative_to, source_digest, source_digest_of
from agent2.records import Split, declared_output
from agent2.scorers import declared, load_scorer
from plugin_builders import QUIZ, write_gsm, write_quiz

NONE = MappingProxyType({})


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])


def declare(folder, monkeypatch, *lines, name="some_pack"):
    """A package's metadata on the path, as an installer leaves it."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_python_file_is_a_benchmark_and_modules_beside_it_can_be_imported(tmp_path):
    benchmark = load_benchmark(f"{write_quiz(tmp_path / 'p')}:Quiz")
    (item,) = benchmark.items(Split.DEV, 1, None)
    assert item.reference == str(2 * int(item.prompt.split()[-1].strip("?")))
    assert benchmark.name == "quiz" and benchmark.version.startswith("1.0+")


def test_the_version_changes_with_the_source_and_with_what_it_imports_and_with_nothing_else(tmp_path):
    file = write_quiz(tmp_path / "p")
    before = load_benchmark(f"{file}:Quiz").version
    (tmp_path / "p" / "unrelated.py").write_text("x = 1")
    assert load_benchmark(f"{file}:Quiz").version == before
    (tmp_path / "p" / "doubling.py").write_text("def twice(number):\n    return 3 * number\n")
    imported = load_benchmark(f"{file}:Quiz").version
    file.write_text(QUIZ + "\n# changed\n")
    assert len({before, imported, load_benchmark(f"{file}:Quiz").version}) == 3


def test_a_file_that_changed_is_read_anew(tmp_path):
    file = write_quiz(tmp_path / "p")
    assert load_benchmark(f"{file}:Quiz").name == "quiz"
    file.write_text(QUIZ.replace('"quiz", "1.0", "accuracy"', '"quiz_two", "1.0", "accuracy"'))
    assert load_benchmark(f"{file}:Quiz").name == "quiz_two"


def test_packaged_things_have_their_plain_version():
    assert load_benchmark("arithmetic").version == "1.0"
    assert source_digest_of(load_benchmark("arithmetic")) == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_like_this\n", "cannot be imported: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("raise RuntimeError('at import')\n", "cannot be imported: RuntimeError: at import"),
        ("import sys\nsys.exit(3)\n", "cannot be imported: SystemExit: 3"),
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("x = 1\n", "cannot be imported: AttributeError"),
        (
            "class Quiz:\n    def __init__(self):\n        raise KeyError('lost')\n",
            "could not be made: KeyError: 'lost'",
        ),
        ("class Quiz:\n    def __init__(self, folder):\n        pass\n", "Quiz needs folder, which was not passed"),
        ("class Quiz:\n    name = 'quiz'\n", "it has no version, primary_metric, max_turns, sampling, attempts, items"),
        (QUIZ.replace("def scorer", "def judge"), "Quiz is not usable as a benchmark: it has no scorer; see"),
        (QUIZ.replace("    def items", "    items = 3\n    def stuff"), "Quiz.items is not a method"),
        (QUIZ.replace('"quiz", "1.0", "accuracy"', '"a quiz", "1.0", "accuracy"'), "name is 'a quiz'; use letters"),
        (
            QUIZ.replace('"quiz", "1.0", "accuracy"', '"arithmetic", "1.0", "accuracy"'),
            "calls itself 'arithmetic', the",
        ),
        (
            QUIZ.replace("SamplingSettings(max_tokens=8)", "{'temperature': 0}"),
            "sampling is {'temperature': 0}; make it",
        ),
        (QUIZ.replace('"accuracy", 1, 1', '"accuracy", 0, 1'), "max_turns is 0; set it to an integer of at least 1"),
        (QUIZ.replace("return Closely()", "return 3"), "int is not usable as a scorer: it has no name, version, score"),
        (QUIZ.replace("return Closely()", "return 1 / 0"), "raised ZeroDivisionError: division by zero"),
        (
            QUIZ.replace('return "question-v1.0"', "return None"),
            "environment_version() gives None; give name and version",
        ),
    ],
)
def test_a_file_that_is_no_usable_benchmark_is_refused_in_one_line_that_says_why(tmp_path, text, sentence):
    file = write_quiz(tmp_path / "p")
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_benchmark(f"{file}:Quiz")
    assert sentence in str(refused.value) and "\n" not in str(refused.value) and "quiz.py:Quiz" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./gone.py:Quiz", "file gone.py does not exist; check the path"),
        ("./gone.py:", "name what the file defines after the colon"),
        ("no_such_pack.quiz:Quiz", "cannot be imported: ModuleNotFoundError"),
        ("./gone", "there is no such file or folder"),
        ("quizz", "unknown benchmark 'quizz'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(tmp_path, monkeypatch, name, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        load_benchmark(name)


def test_a_bare_name_of_a_folder_with_data_says_how_to_write_it(tmp_path, monkeypatch):
    write_gsm(tmp_path / "corner")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"to use the folder of that name, write \./corner"):
        load_benchmark("corner")
    assert load_benchmark("./corner").name == "shop_sums"


def test_an_entry_point_is_found_by_its_name_and_listed(tmp_path, monkeypatch):
    write_quiz(tmp_path / "p")
    declare(
        tmp_path / "p",
        monkeypatch,
        "[agent2.benchmarks]",
        "quiz = quiz:Quiz",
        "[agent2.scorers]",
        "closely = quiz:Closely",
    )
    benchmark = load_benchmark("quiz")
    assert benchmark.name == "quiz" and benchmark.version.startswith("1.0+")
    assert "quiz" in plugins.known_names("benchmark")
    assert declared("closely-v1.0+12345678") == declared_output(benchmark.scorer())
    assert load_scorer("closely", {"tolerance": 2}).tolerance == 2
    with pytest.raises(ConfigError, match=r"unknown setting 'tolerence'; did you mean 'tolerance'\?"):
        load_scorer("closely", {"tolerence": 2})


def test_two_packages_with_one_name_are_refused_and_named(tmp_path, monkeypatch):
    write_quiz(tmp_path / "p")
    declare(tmp_path / "p", monkeypatch, "[agent2.benchmarks]", "quiz = quiz:Quiz")
    declare(tmp_path / "q", monkeypatch, "[agent2.benchmarks]", "quiz = quiz:Other", name="other_pack")
    with pytest.raises(ConfigError, match=r"comes from other_pack 1\.2 and some_pack 1\.2; uninstall one"):
        load_benchmark("quiz")


def test_a_package_that_takes_a_packaged_name_is_refused_and_other_names_still_work(tmp_path, monkeypatch):
    declare(tmp_path / "p", monkeypatch, "[agent2.benchmarks]", "arithmetic = quiz:Quiz")
    with pytest.raises(ConfigError, match=r"'arithmetic' comes from agent2 and some_pack 1\.2; uninstall one"):
        load_benchmark("arithmetic")
    assert load_benchmark("mini_math").name == "mini_math"


def test_a_benchmark_that_calls_itself_otherwise_than_its_entry_point_is_refused(tmp_path, monkeypatch):
    write_quiz(tmp_path / "p")
    declare(tmp_path / "p", monkeypatch, "[agent2.benchmarks]", "riddles = quiz:Quiz")
    with pytest.raises(ConfigError, match="calls itself 'quiz'; its name and that of its entry point have to agree"):
        load_benchmark("riddles")


def test_a_card_of_a_scorer_that_is_broken_here_can_still_be_read(tmp_path, monkeypatch):
    declare(tmp_path / "p", monkeypatch, "[agent2.scorers]", "closely = no_such_module:Closely")
    assert declared("closely-v1.0") is None


def test_a_file_that_names_code_takes_relative_paths_from_its_own_folder(tmp_path):
    assert relative_to("./quiz.py:Quiz", tmp_path) == f"{tmp_path}/quiz.py:Quiz"
    assert relative_to("../data", tmp_path / "tasks") == f"{tmp_path}/data"
    assert relative_to("arithmetic", tmp_path) == "arithmetic"


def test_a_finished_object_is_taken_as_it_is_and_no_settings(tmp_path):
    (tmp_path / "o.py").write_text("from types import SimpleNamespace\nmade = SimpleNamespace(name='made')\n")
    place = find("scorer", f"{tmp_path}/o.py:made", NONE)
    assert build(place).name == "made" and len(source_digest(place)) == 64
    with pytest.raises(ConfigError, match="takes no settings"):
        build(place, {"a": 1})


def test_a_benchmark_may_bring_a_scorer_that_judges_in_batches(tmp_path):
    file = write_quiz(tmp_path / "p")
    file.write_text(QUIZ.replace("def score(self, item, rollout):", "def score_batch(self, batch):"))
    assert load_benchmark(f"{file}:Quiz").scorer().name == "closely"


def test_an_installed_benchmark_can_be_named_by_its_code_too_and_another_of_its_name_cannot(tmp_path, monkeypatch):
    write_quiz(tmp_path / "p")
    (tmp_path / "p" / "quiz.py").rename(tmp_path / "p" / "quiz_by_code.py")
    declare(tmp_path / "p", monkeypatch, "[agent2.benchmarks]", "quiz = quiz_by_code:Quiz")
    assert load_benchmark("quiz_by_code:Quiz").version == load_benchmark("quiz").version
    with pytest.raises(ConfigError, match="calls itself 'quiz', the name of a benchmark that is installed"):
        load_benchmark(f"{write_quiz(tmp_path / 'q')}:Quiz")


def raised_by(function, *arguments):
    """The error that a call ends with."""
    with pytest.raises(Exception) as info:
        function(*arguments)
    return info.value


def test_an_error_of_a_plug_in_has_its_file_and_line_and_one_of_the_package_has_none(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import json\nimport agent2.texts\n\n"
        "def wrong():\n    return 1 / 0\n\n"
        "def in_library():\n    json.loads('{')\n\n"
        "def in_package():\n    agent2.texts.storable(agent2.texts.printable(3))\n"
    )
    loaded = {name: load(find("scorer", f"{file}:{name}", {})) for name in ("wrong", "in_library", "in_package")}
    assert failing_line(raised_by(loaded["wrong"])) == (str(file), 5, "wrong")
    assert failing_line(raised_by(loaded["in_library"])) == (str(file), 8, "in_library")
    assert failing_line(raised_by(loaded["in_package"])) is None, "the last call was into the package"
    assert place_of(raised_by(loaded["wrong"])) == " (mine.py:5)"


@pytest.mark.parametrize(("text", "line"), [("import nothing_like_this\n", 1), ("x = 1\n\ny = {}['gone']\n", 3)])
def test_a_plug_in_that_cannot_be_imported_has_its_line(tmp_path, text, line):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match=rf"cannot be imported: .* \(mine.py:{line}\)"):
        load(find("scorer", f"{tmp_path}/mine.py:X", {}))
