import os

from agent2.arena.recorder.files import walk_files


def names(root, **kwargs):
    return [found.path for found in walk_files(root, 1000, **kwargs)]


def test_regular_files_are_found_in_a_stable_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.py").write_text("x")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / ".hidden").write_text("h")
    assert names(tmp_path) == [".hidden", "a.txt", "b/x.py"]


def test_links_fifos_and_large_files_are_left_out(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    os.mkfifo(root / "fifo")
    (root / "big").write_bytes(b"0" * 1001)
    (root / "ok").write_text("o")
    assert names(root) == ["ok"]


def test_skip_names_count_only_at_the_top(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("a")
    (tmp_path / "code" / "data").mkdir(parents=True)
    (tmp_path / "code" / "data" / "b").write_text("b")
    assert names(tmp_path, skip=frozenset({"data"})) == ["code/data/b"]


def test_a_name_that_is_no_utf8_is_escaped(tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff.py", "w") as file:
        file.write("x")
    assert names(tmp_path) == ["\\udcff.py"] or names(tmp_path) == ["\\xff.py"]
