"""Data outside the folder of a benchmark.yaml are read only where the user allowed it."""

import shutil

import pytest

from agent2 import installation
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.outside import ALLOWED, allow
from agent2.errors import ConfigError
from plugin_builders import write_rows

YAML = """\
name: quiz
version: "1.0"
files: {test: test.jsonl}
prompt: "{question}"
answer: answer
scorer: exact
"""
SEARCH = YAML.replace("scorer: exact", "scorer: cited_answer") + (
    "documents: pages\nenvironment: {name: search}\nmax_turns: 8\n"
)
ROWS = [{"question": f"Who has key {k}?", "answer": "Oren"} for k in range(6)]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def given(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    write_rows(folder / "test.jsonl", ROWS)
    (folder / "benchmark.yaml").write_text(YAML)
    return folder


@pytest.fixture
def private(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    write_rows(folder / "mail.jsonl", ROWS)
    (folder / "notes.txt").write_text("Oren has the key.")
    return folder


def refusal(folder):
    with pytest.raises(ConfigError) as caught:
        DeclaredBenchmark(folder)
    return str(caught.value)


def with_pages(folder):
    (folder / "pages").mkdir()
    (folder / "pages" / "a.md").write_text("Oren has key 1.")
    (folder / "benchmark.yaml").write_text(SEARCH)


def files_outside(folder, private):
    (folder / "benchmark.yaml").write_text(YAML.replace("test.jsonl", "../private/mail.jsonl"))


def absolute(folder, private):
    (folder / "benchmark.yaml").write_text(YAML.replace("test.jsonl", str(private / "mail.jsonl")))


def second_name(folder, private):
    (folder / "benchmark.yaml").write_text(YAML.replace("test.jsonl", "[test.jsonl, ../private/mail.jsonl]"))


def link(folder, private):
    (folder / "test.jsonl").unlink()
    (folder / "test.jsonl").symlink_to(private / "mail.jsonl")


def link_to_a_folder(folder, private):
    (folder / "here").symlink_to(private)
    (folder / "benchmark.yaml").write_text(YAML.replace("test.jsonl", "here/mail.jsonl"))


def documents_outside(folder, private):
    (folder / "benchmark.yaml").write_text(SEARCH.replace("pages", "../private"))


def everything(folder, private):
    (folder / "benchmark.yaml").write_text(SEARCH.replace("pages", "/"))


def page_that_is_a_link(folder, private):
    with_pages(folder)
    (folder / "pages" / "b.txt").symlink_to(private / "notes.txt")


def data_set(folder, private):
    (folder / "benchmark.yaml").write_text(
        YAML.replace("files: {test: test.jsonl}", f"dataset: {{name: {private}, splits: {{test: train}}}}")
    )


def files_of_the_current_folder(folder, private):
    (folder / "benchmark.yaml").write_text(
        YAML.replace("files: {test: test.jsonl}", "dataset: {name: text, splits: {test: train}}")
    )


WAYS_OUT = [
    files_outside,
    absolute,
    second_name,
    link,
    link_to_a_folder,
    documents_outside,
    everything,
    page_that_is_a_link,
    data_set,
    files_of_the_current_folder,
]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_data_outside_the_folder_are_refused_in_a_line_that_says_how_to_allow_them(given, private, way_out):
    way_out(given, private)
    message = refusal(given)
    assert "outside the folder of the benchmark" in message and "agent2 benchmarks allow" in message
    assert message.startswith(f"{given / 'benchmark.yaml'}:")


@pytest.mark.parametrize("way_out", [files_outside, absolute, link, documents_outside, page_that_is_a_link])
def test_data_that_the_user_allowed_for_this_folder_are_read(given, private, way_out, tmp_path):
    way_out(given, private)
    allow(given, [private])
    assert DeclaredBenchmark(given).version.startswith("1.0+")
    copy = tmp_path / "copy"
    shutil.copytree(given, copy, symlinks=True)
    assert "outside the folder" in refusal(copy), "what is allowed holds for one folder"


def test_a_link_in_documents_that_are_allowed_is_allowed_on_its_own(given, private, tmp_path):
    documents_outside(given, private)
    (tmp_path / "more.txt").write_text("more")
    (private / "link.txt").symlink_to(tmp_path / "more.txt")
    (private / "own.txt").symlink_to("notes.txt")
    allow(given, [private])
    assert "'../private/link.txt'" in refusal(given)
    allow(given, [tmp_path / "more.txt"])
    assert DeclaredBenchmark(given).documents_digest


def test_links_that_stay_inside_need_no_leave(given):
    (given / "test.jsonl").rename(given / "stored.jsonl")
    (given / "test.jsonl").symlink_to("stored.jsonl")
    with_pages(given)
    (given / "pages" / "b.md").symlink_to("../pages/a.md")
    DeclaredBenchmark(given)
    assert not (installation.home() / ALLOWED).exists()


def test_an_override_is_the_leave_of_who_wrote_it(given, private):
    benchmark = DeclaredBenchmark(given, [f"files.test={private / 'mail.jsonl'}"])
    assert benchmark.version.startswith("1.0+")


@pytest.mark.parametrize("name", ["a\\0b", "\\ud800"])
def test_a_name_that_no_file_can_have_is_refused_in_a_line(given, name):
    (given / "benchmark.yaml").write_text(YAML.replace("test.jsonl", f'"{name}"'))
    assert "cannot be" in refusal(given)


def test_what_is_allowed_is_kept_once(given, private):
    allow(given, [private])
    allow(given, [private, private])
    assert len((installation.home() / ALLOWED).read_text().splitlines()) == 1


def test_a_list_of_what_is_allowed_that_cannot_be_read_allows_nothing(given, private):
    files_outside(given, private)
    (installation.home() / ALLOWED).write_text("{\n")
    assert ALLOWED in refusal(given)
