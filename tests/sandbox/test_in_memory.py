"""The standard input of a program, also where the kernel refuses files in memory."""

import errno
import os

from agent2.sandbox.limits import in_memory


def test_input_is_given_where_files_in_memory_are_refused(monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    descriptor = in_memory("stdin", b"job" * 100_000)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    assert os.read(descriptor, 400_000) == b"job" * 100_000
    os.close(descriptor)
