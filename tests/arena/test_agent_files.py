import os
import subprocess

from agent2.arena.agent_files import walk_files


def names(root, **kwargs):
    return [file.path for file in walk_files(root, 1000, **kwargs)]


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
    assert names(tmp_path) == ["\\xff.py"]


def test_folders_nested_deeper_than_the_limit_are_left_out_without_a_crash(tmp_path):
    start = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        open("deep.py", "w").close()
        os.chdir(tmp_path)
        (tmp_path / "x.py").write_text("x")
        assert names(tmp_path) == ["x.py"]
    finally:
        os.chdir(start)
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_no_more_bytes_than_allowed_are_read_in_one_walk(tmp_path):
    for number in range(10):
        (tmp_path / f"{number}").write_bytes(b"x" * 100)
    assert len(names(tmp_path, max_total_bytes=350)) == 3
