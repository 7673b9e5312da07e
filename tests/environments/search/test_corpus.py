"""Documents are found, opened, saved and recorded; what is no corpus is refused in one line."""

import json

import pytest

from agent2.environments.search.corpus import (
    Corpus,
    Document,
    RecordingSearch,
    load_backend,
    read_documents,
    read_recorded,
    record_search,
    tokenize,
)
from agent2.errors import ConfigError, EnvironmentFailed

PAGES = [
    Document("a", "Norvik", "Norvik is a town. It lies on the Ulm."),
    Document("b", "Mira", "Mira is a singer from Norvik."),
    Document("c", "Oren", "Oren is a baker from Dunmar."),
]


def hit_ids(backend, query, k=3):
    return [hit.document for hit in backend.search(query, k)]


def test_the_document_with_all_words_comes_first_and_one_without_any_is_not_shown():
    corpus = Corpus.of(PAGES)
    assert hit_ids(corpus, "singer Norvik")[0] == "b"
    assert hit_ids(corpus, "baker") == ["c"]
    assert hit_ids(corpus, "zeppelin") == hit_ids(corpus, "") == []


def test_a_query_of_a_megabyte_or_of_control_characters_is_a_query():
    corpus = Corpus.of(PAGES)
    assert hit_ids(corpus, "baker " + "x" * 1_000_000) == ["c"]
    assert hit_ids(corpus, "baker " * 200_000) == ["c"]
    assert hit_ids(corpus, "\x00\x1b[2J baker \u2028") == ["c"]


def test_a_saved_corpus_gives_the_same_hits_and_pages(tmp_path):
    corpus = Corpus.of(PAGES)
    corpus.save(tmp_path / "index")
    loaded = Corpus.load(tmp_path / "index")
    for query in ("singer Norvik", "town", "from", "zeppelin"):
        assert loaded.search(query, 3) == corpus.search(query, 3)
    assert loaded.open("b") == PAGES[1] and loaded.open("nowhere") is None


def test_no_documents_two_with_one_id_and_none_with_a_word_are_refused():
    for documents, message in (
        ([], "no documents"),
        ([PAGES[0], PAGES[1], PAGES[0]], "documents 0 and 2 have the same id"),
        ([Document("a", "", "...")], "none of 1 documents contains a word"),
    ):
        with pytest.raises(ConfigError, match=message):
            Corpus.of(documents)


def test_a_folder_and_a_dump_give_documents_and_other_files_say_what_is_wrong(tmp_path):
    folder = tmp_path / "pages"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "one.md").write_text("Norvik is a town.")
    assert list(read_documents(folder)) == [Document("sub/one.md", "one", "Norvik is a town.")]
    dump = tmp_path / "dump.jsonl"
    dump.write_text('{"id": "a", "title": "A", "text": "words"}\n\n{"id": "b"}\n')
    with pytest.raises(ConfigError, match=r"dump.jsonl:3: is not a document"):
        list(read_documents(dump))
    dump.write_text('{"id": "a", "text": "one"}\n{"id": "a", "text": "two"}\n')
    with pytest.raises(ConfigError, match=r"dump.jsonl:2: documents of lines 1 and 2 have the same id 'a'"):
        Corpus.of(read_documents(dump))
    dump.write_text("\n")
    with pytest.raises(ConfigError, match="no documents"):
        Corpus.of(read_documents(dump))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"contains no \.txt or \.md file"):
        list(read_documents(tmp_path / "empty"))


def test_what_was_recorded_is_answered_as_it_was(tmp_path):
    corpus, path = Corpus.of(PAGES), tmp_path / "recorded.jsonl"
    record_search(corpus, ["singer Norvik", "zeppelin"], 3, path)
    recorded = read_recorded(path)
    assert hit_ids(recorded, "Singer  norvik") == hit_ids(corpus, "singer Norvik")
    assert hit_ids(recorded, "zeppelin") == []
    assert recorded.open("c") is None  # no search found it
    path.write_text(json.dumps({"query": "x"}) + "\n")
    with pytest.raises(ConfigError, match="needs query and results"):
        read_recorded(path)


def test_words_are_in_lower_case_and_short():
    assert tokenize("The Ulm, " + "y" * 50) == ["the", "ulm", "y" * 40]


def test_what_is_recorded_while_playing_is_replayed_and_twice_is_once(tmp_path):
    path = tmp_path / "new" / "recorded.jsonl"
    recording = RecordingSearch(Corpus.of(PAGES), path)
    for _ in range(2):
        assert hit_ids(recording, "baker") == ["c"]
        assert recording.open("a") == PAGES[0] and recording.open("nowhere") is None
    replay = read_recorded(path)
    assert hit_ids(replay, "baker") == ["c"] and replay.open("a") == PAGES[0] and replay.open("b") is None
    assert replay.version == "recorded-1-bm25-2"


def test_a_recording_without_a_page_is_refused_with_its_path(tmp_path):
    (tmp_path / "none.jsonl").write_text('{"query": "x", "results": []}\n')
    with pytest.raises(ConfigError, match=r"none.jsonl: corpus: there are no documents"):
        read_recorded(tmp_path / "none.jsonl")


FOREIGN = """
class Wrong:
    version = "1"
    def search(self, query, k):
        return ["a", "b"]
    def open(self, document):
        return document

class Nameless:
    def search(self, query, k):
        return []
"""


def test_back_ends_are_found_by_name_or_code_and_what_is_none_is_refused(tmp_path):
    Corpus.of(PAGES).save(tmp_path / "index")
    assert hit_ids(load_backend("index", {"path": str(tmp_path / "index")}), "baker") == ["c"]
    (tmp_path / "foreign.py").write_text(FOREIGN)
    wrong = load_backend(f"{tmp_path / 'foreign.py'}:Wrong")
    assert wrong.version.startswith("1+")
    with pytest.raises(EnvironmentFailed, match="has to return a list of SearchHit"):
        wrong.search("x", 3)
    with pytest.raises(EnvironmentFailed, match="has to return a Document or None"):
        wrong.open("x")
    for name, settings, message in (
        (f"{tmp_path / 'foreign.py'}:Nameless", None, "has no open and version"),
        ("goggle", None, "unknown search_backend 'goggle'; known: index, recorded"),
        ("index", {"folder": "x"}, "folder"),
        ("index", {"path": str(tmp_path)}, "is not a saved corpus"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_backend(name, settings)
