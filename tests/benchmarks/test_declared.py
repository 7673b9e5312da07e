import csv
import json

import pyarrow
import pyarrow.parquet
import pytest

from agent2.benchmarks import load_benchmark, name_inside
from agent2.benchmarks.data_files import MAX_LINE_BYTES, file_digest, read_rows
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.outside import allow
from agent2.errors import ConfigError
from agent2.records import Rollout, RolloutStatus, Split, Usage
from plugin_builders import GSM_YAML, worked, write_gsm, write_quiz, write_rows

SECRET, OTHER = b"s" * 32, b"o" * 32
HIDDEN = (Split.TEST_PUBLIC, Split.TEST_PRIVATE)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def gsm(tmp_path):
    return write_gsm(tmp_path / "shop")


def everything(benchmark, split, secret=SECRET):
    return benchmark.items(split, benchmark.count(split, secret), secret)


def verdict(benchmark, item, answer):
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())
    return benchmark.scorer().score(item, rollout).value


def change(folder, *changes):
    text = (folder / "benchmark.yaml").read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "benchmark.yaml").write_text(text)
    return folder


def refusal(folder, split=Split.TRAIN):
    """The one line with which a folder is refused when it is loaded, or when items are asked for."""
    with pytest.raises(ConfigError) as refused:
        everything(load_benchmark(str(folder)), split)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_folder_with_data_is_a_benchmark_whose_references_are_right_and_other_answers_are_not(gsm):
    benchmark = load_benchmark(str(gsm))
    items = [item for split in Split for item in everything(benchmark, split)]
    assert len(items) == 101 and len({item.id for item in items}) == 101
    assert [verdict(benchmark, item, item.reference) for item in items] == [1.0] * 101
    assert {verdict(benchmark, item, "#### 1") for item in items} == {0.0}
    assert benchmark.name == "shop_sums" and benchmark.sampling.max_tokens == 64
    assert items[0].prompt.endswith("each. How much are all of them?\nEnd with a line #### and the number.")


def test_a_test_file_is_halved_by_the_secret_and_its_items_need_it(gsm):
    benchmark = load_benchmark(str(gsm))
    public, private = (everything(benchmark, split) for split in HIDDEN)
    assert (len(public), len(private)) == (21, 20)
    prompts = [{item.prompt for item in part} for part in (public, private)]
    assert not prompts[0] & prompts[1] and len(prompts[0] | prompts[1]) == 41
    assert {item.prompt for item in everything(benchmark, Split.TEST_PUBLIC, OTHER)} != prompts[0]
    for split in HIDDEN:
        with pytest.raises(ConfigError, match="is hidden and needs the installation secret"):
            benchmark.items(split, 1, None)
    visible = {item.prompt for split in (Split.TRAIN, Split.DEV) for item in everything(benchmark, split, None)}
    assert not visible & (prompts[0] | prompts[1])


def test_ids_of_hidden_items_cannot_be_computed_from_the_data_alone(gsm):
    benchmark = load_benchmark(str(gsm))
    mine, theirs = ({item.id for item in everything(benchmark, Split.TEST_PUBLIC, key)} for key in (SECRET, OTHER))
    assert not mine & theirs


def test_a_part_of_train_is_dev_unless_a_dev_file_is_named_and_the_order_of_the_file_does_not_matter(gsm, tmp_path):
    benchmark = load_benchmark(str(gsm))
    train, dev = everything(benchmark, Split.TRAIN, None), everything(benchmark, Split.DEV, None)
    assert len(train) + len(dev) == 60 and 1 <= len(dev) <= 15
    write_rows(gsm / "train.jsonl", [worked(k) for k in reversed(range(60))])
    assert [item.prompt for item in everything(load_benchmark(str(gsm)), Split.TRAIN, None)] == [
        i.prompt for i in train
    ]
    write_rows(gsm / "dev.jsonl", [worked(500)])
    change(gsm, ("{train: train.jsonl,", "{train: train.jsonl, dev: dev.jsonl,"))
    benchmark = load_benchmark(str(gsm))
    assert [benchmark.count(split, None) for split in (Split.TRAIN, Split.DEV)] == [60, 1]


def test_one_file_for_all_is_divided_into_four_disjoint_splits(gsm):
    write_rows(gsm / "all.jsonl", [worked(k) for k in range(300)])
    change(gsm, ("{train: train.jsonl, test: test.jsonl}", "{all: all.jsonl}"))
    benchmark = load_benchmark(str(gsm))
    parts = {split: {item.prompt for item in everything(benchmark, split)} for split in Split}
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 300
    assert abs(len(parts[Split.TEST_PUBLIC]) - len(parts[Split.TEST_PRIVATE])) <= 1 and len(parts[Split.TRAIN]) > 120


def test_csv_and_parquet_give_the_same_items_as_jsonl(gsm):
    expected = [(item.prompt, item.reference) for item in everything(load_benchmark(str(gsm)), Split.TRAIN)]
    rows = [worked(k) for k in range(60)]
    with (gsm / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), gsm / "train.parquet")
    for name in ("train.csv", "train.parquet"):
        write_gsm(gsm, GSM_YAML.replace("train.jsonl", name))
        assert [(i.prompt, i.reference) for i in everything(load_benchmark(str(gsm)), Split.TRAIN)] == expected


def test_a_local_data_set_of_the_datasets_library_is_read(gsm):
    source = f"dataset: {{name: {gsm}, splits: {{train: train, test: test}}}}"
    text = GSM_YAML.replace("files: {train: train.jsonl, test: test.jsonl}", source)
    (gsm.parent / "hub").mkdir()
    (gsm.parent / "hub" / "benchmark.yaml").write_text(text)
    allow(gsm.parent / "hub", [gsm, gsm.parent / "nothing"])
    ours, files = load_benchmark(str(gsm.parent / "hub")), load_benchmark(str(gsm))
    assert everything(ours, Split.TEST_PRIVATE) == everything(files, Split.TEST_PRIVATE)
    (gsm.parent / "hub" / "benchmark.yaml").write_text(text.replace(str(gsm), str(gsm.parent / "nothing")))
    assert "benchmark.yaml:3: data set" in (message := refusal(gsm.parent / "hub")) and "cannot be loaded" in message


def test_the_version_tells_the_data_the_prompt_and_the_scorer_and_not_where_they_are(gsm, tmp_path):
    versions = {load_benchmark(str(gsm)).version}
    assert load_benchmark(str(write_gsm(tmp_path / "elsewhere"))).version in versions
    for before, after in (
        ("End with", "Finish with"),
        ("max_tokens: 64", "max_tokens: 65"),
        ("name: final_answer", "name: exact"),
    ):
        versions.add(load_benchmark(str(write_gsm(tmp_path / "v", GSM_YAML.replace(before, after)))).version)
    write_gsm(tmp_path / "v", n_test=40)
    versions.add(load_benchmark(str(tmp_path / "v")).version)
    assert len(versions) == 5 and all(version.startswith("1.0+") for version in versions)


def test_pinned_data_that_changed_are_refused_with_the_line_of_the_pin(gsm):
    pins = f"sha256:\n  train: {file_digest(gsm / 'train.jsonl')}\n  test: {file_digest(gsm / 'test.jsonl')}\n"
    before = load_benchmark(str(gsm)).version
    (gsm / "benchmark.yaml").write_text(GSM_YAML + pins)
    assert load_benchmark(str(gsm)).version == before
    with (gsm / "test.jsonl").open("a") as file:
        file.write(json.dumps(worked(5000)) + "\n")
    assert "benchmark.yaml:10: test.jsonl changed after it was pinned: sha256 is" in refusal(gsm)


def test_a_process_that_gets_its_items_finds_the_same_benchmark_without_any_data(gsm, tmp_path):
    change(gsm, ('"{question}\\n', '"{question} \\u2028\\u00e9\\U0001f600\\n'))
    (tmp_path / "inside").mkdir()
    name = name_inside(str(gsm), tmp_path / "inside", lambda path: path)
    (gsm / "train.jsonl").unlink()
    (gsm / "test.jsonl").unlink()
    inside = load_benchmark(name)
    write_gsm(gsm, (gsm / "benchmark.yaml").read_text())
    outside = load_benchmark(str(gsm))
    assert (inside.name, inside.version, inside.scorer().version) == (outside.name, outside.version, "1.0")
    assert [path.name for path in (tmp_path / "inside").iterdir()] == ["benchmark.yaml"]
    assert "jars" not in (tmp_path / "inside" / "benchmark.yaml").read_text()
    (tmp_path / "inside" / "train.jsonl").write_text("the rows of a workspace")
    assert load_benchmark(name).version == inside.version


def test_a_system_message_comes_first(gsm):
    change(gsm, ("answer: answer", 'system: "You sell {jars}."\nanswer: answer'))
    assert "benchmark.yaml:5: system" not in load_benchmark(str(gsm)).name
    benchmark = load_benchmark(str(gsm))
    (item,) = benchmark.items(Split.TRAIN, 1, None)
    assert [(m.role, m.content[:8]) for m in benchmark.environment().reset(item, 0)] == [
        ("system", "You sell"),
        ("user", "A shop s"),
    ]


def test_the_reference_can_be_cut_out_of_a_field_and_written_as_the_scorer_wants_it(gsm):
    change(gsm, ("answer: answer", 'answer: {field: answer, after: "#### ", form: "A: {answer}"}'))
    change(gsm, ("{name: final_answer}", '{name: final_answer, marker: "A: "}'))
    benchmark = load_benchmark(str(gsm))
    (item,) = benchmark.items(Split.TEST_PUBLIC, 1, SECRET)
    assert item.reference.startswith("A: 1,0")
    assert verdict(benchmark, item, f"So {item.reference}") == 1.0
    assert verdict(benchmark, item, item.reference.replace("A: ", "#### ")) == 0.0


def test_a_scorer_from_a_file_beside_it_is_used_with_its_settings_and_is_in_the_version(gsm):
    write_quiz(gsm)
    change(gsm, ("{name: final_answer}", "{name: ./quiz.py:Closely, tolerance: 3}"))
    change(gsm, ("answer: answer", r"answer: {field: answer, pattern: '([0-9]+)\*'}"))
    benchmark = load_benchmark(str(gsm))
    (item,) = benchmark.items(Split.TRAIN, 1, None)
    assert verdict(benchmark, item, str(int(item.reference) + 3)) == 1.0
    assert verdict(benchmark, item, str(int(item.reference) + 4)) == 0.0
    before = benchmark.version
    (gsm / "doubling.py").write_text("def twice(number):\n    return number\n")
    assert load_benchmark(str(gsm)).version != before


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("name: shop_sums\n", "", "key 'name' is missing"),
        ('version: "1.0"\n', "", "key 'version' is missing"),
        ("answer: answer\n", "", "name 'answer', the field with"),
        ("scorer: {name: final_answer}\n", "", "key 'scorer' is missing"),
        ("files: {train: train.jsonl, test: test.jsonl}\n", "", "name either 'files' or 'dataset'"),
        (
            "{name: final_answer}",
            "{name: final_anser}",
            ":6: unknown scorer 'final_anser'; did you mean 'final_answer'?",
        ),
        ("{name: final_answer}", "{name: exact, marker: x}", "scorer 'exact': unknown setting 'marker'"),
        ("{name: final_answer}", '{name: final_answer, marker: " "}', "marker is ' '; give the text"),
        ("name: shop_sums", "name: mini_math", "calls itself 'mini_math', the name of a benchmark that is installed"),
        ("{question}", "{qestion}", ":4: no row of"),
        ("{question}", "{qestion}", "unknown field 'qestion'; did you mean 'question'?"),
        ("{question}", "{question.x}", "unknown field 'question.x'; did you mean 'question'?"),
        ("{question}", "{question!r}", "only names of fields"),
        ("{question}", "{0[a]}", "only names of fields"),
        ("{question}", "{question", "write {{ and }} for braces"),
        ("answer: answer\n", "answer: anser\n", "unknown field 'anser'; did you mean 'answer'?"),
        ("answer: answer\n", "answer: {field: answer, after: '=== '}\n", "has nothing after '=== ' in 60 of 60 rows"),
        ("answer: answer\n", "answer: {field: answer, pattern: 'x+'}\n", "put parentheses around the answer"),
        ("train.jsonl", "gone.jsonl", "gone.jsonl: cannot be read (No such file or directory)"),
        (
            "train.jsonl",
            "benchmark.yaml",
            "benchmark.yaml: is not one of .jsonl, .jsonl.gz, .json, .csv, .tsv, .parquet",
        ),
        ("test: test.jsonl", "all: test.jsonl", "'all' is divided into splits, so 'train' cannot be named beside it"),
        ("test: test.jsonl", "tests: test.jsonl", ":3: unknown key 'tests'; did you mean 'test'?"),
        ("temperature: 0.0", "temperature: none", "sampling.temperature: give a temperature of 0 to 100"),
        ("sampling:", "sampilng:", ":7: unknown key 'sampilng'; did you mean 'sampling'?"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_says_where_and_why(gsm, before, after, message):
    assert message in refusal(change(gsm, (before, after)))


def test_a_declared_benchmark_may_leave_its_sampling_to_the_server(gsm):
    change(gsm, ("temperature: 0.0", "temperature: unset, top_p: unset"))
    sampling = load_benchmark(str(gsm)).sampling
    assert (sampling.temperature, sampling.top_p) == (None, None)
    assert sampling.description.startswith("temperature unset, top-p unset, ")


def test_an_answer_that_half_the_rows_lack_is_counted_and_the_first_one_named(gsm):
    rows = [worked(k) if k % 2 else {"question": worked(k)["question"]} for k in range(60)]
    write_rows(gsm / "train.jsonl", rows)
    assert "train.jsonl:1: answer field 'answer' is missing or empty in 30 of 60 rows, this one first" in refusal(gsm)


def test_double_questions_and_double_ids_are_refused_with_both_lines(gsm):
    write_rows(gsm / "train.jsonl", [worked(1), worked(2), worked(1)])
    assert "train.jsonl:3: asks the same as line 1; remove one, or name an 'id' field" in refusal(gsm)
    change(gsm, ("answer: answer", "answer: answer\nid: key"))
    write_rows(gsm / "train.jsonl", [{**worked(k), "key": key} for k, key in enumerate(["a", "b", "b"])])
    assert "train.jsonl:3: id 'b' also appears in line 2" in refusal(gsm)
    write_rows(gsm / "train.jsonl", [{**worked(k), "key": k} for k in range(20)])
    assert {item.id for item in everything(load_benchmark(str(gsm)), Split.TRAIN)} <= {
        f"shop_sums-{k}" for k in range(20)
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "train.jsonl: holds no rows"),
        (b"\n \n", "train.jsonl: holds no rows"),
        (b'{"question": "a", "answer": "1"}\n{"question": "caf\xe9"}\n', "train.jsonl:2: not UTF-8 text"),
        (b'{"question": "a", "answer": "1"}\n{"question": \n', "train.jsonl:2: not valid JSON"),
        (b'["a", "b"]\n', "train.jsonl:1: ['a', 'b'] is not a JSON object"),
        (b'{"question": "a", "answer": null}\n', "answer field 'answer' is missing or empty in 1 of 1 rows"),
        (b'{"question": ["a"], "answer": "1"}\n', "variable {question} of the prompt is missing, or neither text nor"),
    ],
)
def test_a_wrong_data_file_is_refused_with_its_line(gsm, data, message):
    (gsm / "train.jsonl").write_bytes(data)
    assert message in refusal(gsm)


def test_a_line_of_two_gigabytes_is_refused_without_being_read(gsm):
    with (gsm / "train.jsonl").open("wb") as file:
        file.write(b'{"question": "a", "answer": "1"}\n{"question": "')
        file.truncate(2 << 30)  # a sparse file: no disk is used
    change(gsm, ('version: "1.0"', f'version: "1.0"\nsha256: {{train: {"a" * 64}}}'))
    message = refusal(gsm)
    assert "changed after it was pinned" in message  # the digest reads in blocks, whatever a line is
    with pytest.raises(ConfigError, match=rf"train\.jsonl:2: the line is longer than {MAX_LINE_BYTES >> 20} MiB"):
        read_rows(gsm / "train.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,answer\na,1,2\n", "train.csv:2: has 3 fields, the header 2"),
        ("question,question\na,1\n", "train.csv:1: two columns have the same name"),
        ('question,answer\n"a,1\n', "train.csv:2: not valid CSV"),
        ("question,answer\n", "train.csv: holds no rows"),
    ],
)
def test_a_wrong_csv_file_is_refused_with_its_line(gsm, text, message):
    (gsm / "train.csv").write_text(text)
    assert message in refusal(change(gsm, ("train.jsonl", "train.csv")))


def test_a_damaged_parquet_file_is_refused(gsm):
    (gsm / "train.parquet").write_bytes(b"PAR1 nothing")
    assert "train.parquet: not a readable Parquet file" in refusal(change(gsm, ("train.jsonl", "train.parquet")))


def test_more_items_than_there_are_and_a_split_that_no_file_holds_are_refused(gsm):
    benchmark = DeclaredBenchmark(gsm)
    with pytest.raises(ConfigError, match="99 items of split 'test_public' were asked for, there are 21"):
        benchmark.items(Split.TEST_PUBLIC, 99, SECRET)
    change(gsm, ("train: train.jsonl, ", ""))
    assert "benchmark.yaml:3: no file holds items of split 'train'; name one" in (
        refusal_of_items(load_benchmark(str(gsm)), Split.TRAIN)
    )
    assert load_benchmark(str(gsm)).count(Split.TRAIN, None) == 0


def refusal_of_items(benchmark, split):
    with pytest.raises(ConfigError) as refused:
        benchmark.items(split, 1, SECRET)
    return str(refused.value)


def test_an_answer_may_be_left_out_only_where_a_world_gives_the_verdict(gsm):
    assert "name 'answer', the field with the reference" in refusal(change(gsm, ("answer: answer\n", "")))
    world = "scorer: reward\nenvironment: {name: openenv, url: 'http://127.0.0.1:1'}"
    benchmark = load_benchmark(str(change(gsm, ("scorer: {name: final_answer}", world))))
    assert {item.reference for item in everything(benchmark, Split.TRAIN)} == {None}
