"""Files of others: opened at once or refused with the reason, and read up to a limit; pipes where a user names one."""

import os
import socket
import threading
from pathlib import Path

import pytest

from agent2.foreign_files import (
    MAX_SMALL_UNPACKED,
    last_lines,
    open_regular,
    read_limited,
    read_named,
    read_tail,
    require_no_bomb,
)
from socket_paths import short_path


def refused(read, path, *limits, **options):
    """What an attempt to read a path says."""
    with pytest.raises(OSError) as info:
        read(path, *limits, **options)
    assert info.value.filename == str(path)
    return info.value.strerror


def test_a_file_is_read_whole_up_to_the_limit_and_refused_one_byte_beyond(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"12345")
    assert read_limited(path, 5) == read_named(path, 5) == b"12345"
    assert refused(read_limited, path, 4) == "is larger than 4 bytes, the limit for such a file"
    assert refused(read_named, path, 4) == "is larger than 4 bytes, the limit for such a file"


def test_a_file_without_a_size_is_read_up_to_the_limit():
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_limited(Path("/proc/self/maps"), 10)


def test_a_link_is_followed_only_where_links_are_wanted(tmp_path):
    (tmp_path / "target").write_bytes(b"text")
    link = tmp_path / "link"
    link.symlink_to("target")
    assert refused(read_limited, link) == "is a symbolic link, which is not followed here"
    assert read_limited(link, follow=True) == read_named(link, 100) == b"text"


@pytest.mark.parametrize("read", [open_regular, read_limited])
def test_pipes_devices_sockets_and_folders_are_refused_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(short_path(tmp_path / "socket"))
        assert refused(read, tmp_path / "socket") == "is a socket, not a regular file"
    assert refused(read, tmp_path / "pipe") == "is a named pipe, not a regular file"
    assert refused(read, tmp_path / "zeros", follow=True) == "is a device, not a regular file"
    assert refused(read, tmp_path) == "is a folder, not a regular file"
    assert refused(read, tmp_path / "none") == "No such file or directory"


def test_a_named_pipe_of_the_user_is_read_to_its_end(tmp_path):
    path, text = tmp_path / "pipe", b"x" * 300_000
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(text,))
    writer.start()
    assert read_named(path, 300_000) == text
    writer.join()


def test_a_pipe_is_neither_waited_for_for_ever_nor_read_without_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "nothing was written for 0.05 s" in refused(read_named, path, 100, wait_s=0.05)
    reader, writer = os.pipe()
    try:
        os.write(writer, b"x" * 200)
        with pytest.raises(OSError, match="larger than 100 bytes"):
            read_named(Path(f"/dev/fd/{reader}"), 100)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_bomb_is_what_unpacks_to_much_more_than_data_do(tmp_path):
    require_no_bomb(tmp_path, 1_000, MAX_SMALL_UNPACKED)
    require_no_bomb(tmp_path, MAX_SMALL_UNPACKED // 50, 2 * MAX_SMALL_UNPACKED)
    with pytest.raises(OSError, match="unpacks to more than 200 times its size"):
        require_no_bomb(tmp_path, MAX_SMALL_UNPACKED // 1000, MAX_SMALL_UNPACKED + 1)


def test_the_end_of_a_log_is_read_without_the_rest(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10_000 + b"\n\n last \xff line\n\n")
    assert read_tail(log, 5) == b"ine\n\n" and read_tail(log, 20_000) == log.read_bytes()
    assert last_lines(log, 20)[-1] == "last \ufffd line"
    assert last_lines(tmp_path / "none", 20) == last_lines(tmp_path, 20) == []
