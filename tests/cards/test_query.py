import os

import pytest

from agent2.cards.query import CardQueries
from agent2.cards.writer import CardWriter
from agent2.errors import CardError, ConfigError
from card_builders import make_header, make_record
from contract_card_builders import make_scored, write_card


@pytest.fixture
def cards(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    top = tmp_path / "it's a folder"
    write_card(top / "old", [make_scored(f"i{i}", float(i < 3), {"parsed": 1.0}) for i in range(10)])
    new = [make_scored(f"i{i}", float(i < 5), {"parsed": float(i < 9)}, ["blank"] * (i > 8)) for i in range(10)]
    write_card(top / "new", new, checkpoint="better")
    with CardWriter(top / "open", make_header()) as writer:
        writer.append(make_record("a"))
    with CardQueries([top]) as queries:
        yield queries


def test_rollouts_of_many_cards_are_one_table(cards):
    page = cards.page("select checkpoint, avg(counted), count(*) from rollouts group by 1 order by 1")
    assert page.rows == (("base", 0.3, 10), ("better", 0.5, 10))


def test_views_and_labels_can_be_asked_for(cards):
    page = cards.page("select item_id from rollouts where views['parsed'] = 0 and list_contains(labels, 'blank')")
    assert page.rows == (("i9",),)


def test_items_of_two_checkpoints_are_joined(cards):
    page = cards.page(
        "select o.item_id from rollouts o join rollouts n using (item_id) where o.checkpoint = 'base' "
        "and n.checkpoint = 'better' and o.counted < n.counted order by 1"
    )
    assert page.rows == (("i3",), ("i4",))


def test_cards_have_a_row_each_and_unfinished_ones_are_named(cards):
    page = cards.page("select checkpoint, benchmark, split, value, n_items from cards order by value")
    assert page.rows == (("base", "fake-v1", "dev", 0.3, 10), ("better", "fake-v1", "dev", 0.5, 10))
    assert [path.name for path in cards.skipped] == ["open"]


def test_results_come_in_pages(cards):
    sql = "select item_id from rollouts where checkpoint = 'base' order by 1"
    pages = [cards.page(sql, start, 4) for start in (0, 4, 8)]
    assert [len(page.rows) for page in pages] == [4, 4, 2]
    assert [page.has_more for page in pages] == [True, True, False]
    assert pages[0].columns == ("item_id",)
    assert [row[0] for page in pages for row in page.rows] == [f"i{i}" for i in range(10)]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/passwd')",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from glob('/etc/*')",
        "select * from read_blob('/proc/self/environ')",
        "select * from query('select * from read_text(''/etc/passwd'')')",
        "with x as (select content from read_text('/etc/passwd')) select * from x",
        "select (select content from read_text('/etc/passwd'))",
        "select * from sniff_csv('/etc/passwd')",
        "select * from duckdb_secrets()",
        "select getenv('HOME')",
        "select * from cards_in_python",
    ],
)
def test_no_select_reaches_beyond_the_cards(cards, sql):
    cards_in_python = [1]  # a local name that a replacement scan would find
    assert cards_in_python
    with pytest.raises(ConfigError):
        cards.page(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "copy rollouts to '/tmp/stolen.parquet'",
        "attach '/tmp/stolen.db'",
        "set enable_external_access = true",
        "install httpfs",
        "drop view rollouts",
        "create table t as select 1",
        "delete from all_cards",
        "select 1; drop view rollouts",
        "export database '/tmp/stolen'",
        "pragma database_list",
        "",
    ],
)
def test_nothing_but_one_select_is_run(cards, sql):
    with pytest.raises(ConfigError, match="one SELECT statement is needed"):
        cards.page(sql)
    assert cards.page("select count(*) from rollouts").rows == ((20,),)


def test_a_wrong_column_is_one_sentence_with_the_nearest_names(cards):
    with pytest.raises(ConfigError, match="itm_id") as caught:
        cards.page("select itm_id from rollouts")
    assert "\n" not in str(caught.value)


def test_folders_without_finished_cards_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        CardQueries([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="no finished card there"):
        CardQueries([tmp_path])


def test_a_damaged_card_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    card = write_card(tmp_path / "card", [make_record("a")])
    (card / "rollouts.parquet").write_bytes(b"nothing")
    with pytest.raises(CardError, match="does not match its digest"):
        CardQueries([card])


def test_one_card_named_twice_counts_once(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    card = write_card(tmp_path / "card", [make_record("a")])
    with CardQueries([tmp_path, card]) as queries:
        assert queries.page("select count(*) from rollouts").rows == ((1,),)


def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    names = ["run1", "run[1]", "run?", "run*"]
    for n, name in enumerate(names, start=1):
        write_card(tmp_path / "cards" / name, [make_scored(f"i{i}", 1.0) for i in range(n)])
    with CardQueries([tmp_path / "cards"]) as queries:
        rows = queries.page("select card, count(*) from rollouts group by 1").rows
    assert dict(rows) == {str(tmp_path / "cards" / name): n for n, name in enumerate(names, start=1)}


def test_a_path_that_is_not_utf8_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    write_card(tmp_path / "card", [make_scored("i", 1.0)]).rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(CardError, match="its path is not UTF-8, which the database needs; rename the folder"):
        CardQueries([tmp_path])
