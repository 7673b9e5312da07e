import os
import re
import sys

from agent2.arena.host_folders import HostFolders


def test_folders_become_words_and_their_neighbours_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    trial = tmp_path / "someone" / "trials" / "one"
    folders = HostFolders(trial)
    text = f"{trial}/agent.log {tmp_path}/someone/x {tmp_path}/someone2/x {sys.prefix}/bin/python /usr/bin/python3"
    expected = f"<trial>/agent.log <home>/x {tmp_path}/someone2/x <python>/bin/python /usr/bin/python3"
    assert folders.replaced(text.encode()) == expected.encode()
    assert folders.occur_in(text.encode()) and not folders.occur_in(expected.encode())


def test_a_home_of_one_part_is_replaced_only_where_a_path_begins(monkeypatch):
    monkeypatch.setenv("HOME", "/root")
    folders = HostFolders()
    text = b"/root/x file:///root/x '/root' /workspace/root/x /rootfs /root-2"
    assert folders.replaced(text) == b"<home>/x file://<home>/x '<home>' /workspace/root/x /rootfs /root-2"


def test_a_link_to_a_folder_is_known_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folders = HostFolders(tmp_path / "link")
    assert folders.replaced(os.fsencode(f"{tmp_path}/link {tmp_path}/real")) == b"<trial> <trial>"


def test_in_a_page_broken_words_are_found_and_the_word_is_escaped(tmp_path):
    folders = HostFolders(more={tmp_path / "a & b": "results"})
    escaped = re.findall(r"&amp;|.", f"{tmp_path}/a &amp; b/x")
    broken = "<wbr>".join(escaped)
    page = f"<td>{broken}</td><td>{tmp_path}/a &amp; b</td><td>{sys.prefix}/bin</td><p>é \ud800"
    assert folders.replaced_in_page(page).startswith(
        "<td>results<wbr>/<wbr>x</td><td>results</td><td>&lt;python&gt;/bin"
    )
    assert folders.replaced_in_page(page).endswith("<p>é \ud800")


def test_a_replay_masks_words_of_others_and_folders_of_this_machine():
    patterns = [re.compile(pattern) for pattern in HostFolders().volatile()]
    texts = []
    for text in ("<python>/lib/x.py", f"{sys.prefix}/lib/x.py"):
        for pattern in patterns:
            text = pattern.sub("*", text)
        texts.append(text)
    assert texts == ["*/lib/x.py"] * 2
