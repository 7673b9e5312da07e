import hashlib
import os
import socket
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent2.arena.grader.submission import (
    SPARE_BYTES,
    SnapshotInfo,
    SnapshotLimits,
    drop_ballast,
    snapshot_limits,
    take_snapshot,
)
from agent2.errors import SubmissionError


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "host" / "workspace"
    model = folder / "output" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"w" * 1000)
    return folder


def snapshot(workspace: Path, model_path: str = "output/model", **limits: object) -> SnapshotInfo:
    target = workspace.parent.parent / "submissions" / "1" / "snapshot"
    return take_snapshot(workspace, model_path, target, SnapshotLimits(**limits))  # type: ignore[arg-type]


def refusal(workspace: Path, model_path: str = "output/model", **limits: object) -> str:
    with pytest.raises(SubmissionError) as caught:
        snapshot(workspace, model_path, **limits)
    sentence = str(caught.value)
    assert str(workspace.parent) not in sentence or str(workspace.parent) in model_path
    assert not list(workspace.parent.parent.glob("submissions/1/*")), "a refused submission leaves nothing"
    return sentence


@pytest.mark.parametrize(
    "path",
    ["output/model", "output//model/", "./output/./model", "/workspace/output/model", "/workspace//output/model/"],
)
def test_a_folder_is_found_relative_or_below_the_root_that_the_agent_sees(workspace, path):
    info = snapshot(workspace, path)
    assert set(info.files) == {"config.json", "model.safetensors"}
    assert info.size_bytes == 1002


def test_the_copy_is_read_only_equal_and_named_by_its_digests(workspace):
    info = snapshot(workspace)
    copy = info.path / "model.safetensors"
    assert copy.read_bytes() == b"w" * 1000
    assert copy.stat().st_mode & 0o222 == 0
    assert info.files["config.json"] == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_later_writes_in_the_workspace_do_not_reach_the_copy(workspace):
    info = snapshot(workspace)
    (workspace / "output/model/model.safetensors").write_bytes(b"x" * 1000)
    assert (info.path / "model.safetensors").read_bytes() == b"w" * 1000


def test_subfolders_and_files_of_other_kinds_are_left_aside_and_named(workspace):
    (workspace / "output/model/checkpoint-100").mkdir()
    (workspace / "output/model/training_args.bin").write_bytes(b"p")
    info = snapshot(workspace)
    assert info.skipped == ("checkpoint-100/", "training_args.bin")
    assert sorted(entry.name for entry in info.path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_missing_path_says_so(workspace):
    assert "'output/nothing' does not exist" in refusal(workspace, "output/nothing")


@pytest.mark.parametrize("path", ["../../etc", "output/../../x", "/workspace/../etc", ".."])
def test_dot_dot_is_refused(workspace, path):
    assert "contains '..'" in refusal(workspace, path)


@pytest.mark.parametrize("path", ["/etc", "/workspacex/model", "/", "/root/.ssh"])
def test_an_absolute_path_elsewhere_is_refused(workspace, path):
    assert "outside the workspace" in refusal(workspace, path)


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "x" * 5000])
def test_a_path_that_names_nothing_is_refused(workspace, path):
    assert "model_path is empty, too long or holds a zero byte" in refusal(workspace, path)


def test_the_host_path_counts_only_without_a_sandbox(workspace):
    inside = str(workspace / "output" / "model")
    assert "outside the workspace" in refusal(workspace, inside)
    assert snapshot(workspace, inside, accept_host_paths=True).size_bytes == 1002


def test_a_link_on_the_way_is_not_followed(workspace, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    assert "'link' is a symbolic link" in refusal(workspace, "link")
    (workspace / "dir").symlink_to(workspace / "output")
    assert "'dir' is a symbolic link" in refusal(workspace, "dir/model")


def test_a_link_in_the_folder_is_refused_also_to_a_file_nearby(workspace):
    model = workspace / "output/model"
    (model / "tokenizer.json").symlink_to(model / "config.json")
    assert "'tokenizer.json' is a symbolic link" in refusal(workspace)


def test_pipes_and_sockets_are_refused_without_waiting_for_them(workspace, monkeypatch):
    model = workspace / "output/model"
    os.mkfifo(model / "tokenizer.json")
    assert "'tokenizer.json' is not a regular file" in refusal(workspace)
    (model / "tokenizer.json").unlink()
    monkeypatch.chdir(model)  # a socket's path may be 108 bytes long at most
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        assert "'s' is not a regular file" in refusal(workspace)


def test_a_file_as_path_is_refused(workspace):
    assert "is not a folder" in refusal(workspace, "output/model/config.json")


def test_an_empty_folder_is_refused(workspace):
    (workspace / "empty").mkdir()
    assert "is empty" in refusal(workspace, "empty")


def test_a_50_gb_sparse_file_is_refused_by_its_length_without_being_read(workspace):
    with (workspace / "output/model/model.safetensors").open("wb") as file:
        file.truncate(50 << 30)
    sentence = refusal(workspace)
    assert f"'model.safetensors' alone {50 << 30}" in sentence
    assert "at most 21474836480 are allowed" in sentence


def test_a_small_file_in_a_folder_of_many_is_refused_by_count(workspace):
    for number in range(6):
        (workspace / f"output/model/note-{number}.txt").write_text("x")
    assert "more than 5 entries" in refusal(workspace, max_entries=5)
    (workspace / "output/model/model.safetensors").unlink()  # beside a whole file shards do not count
    for number in range(4):
        (workspace / f"output/model/model-{number}.safetensors").write_text("x")
    assert "5 model files, at most 3" in refusal(workspace, max_files=3)


def test_a_file_swapped_while_the_snapshot_is_taken_is_noticed(workspace):
    model = workspace / "output/model"
    target = workspace.parent.parent / "snapshot"

    def swap() -> None:
        (model / "new").write_bytes(b"v" * 1000)
        (model / "new").rename(model / "model.safetensors")

    with pytest.raises(
        SubmissionError, match=r"'model.safetensors' changed while the snapshot was taken; submit again"
    ):
        take_snapshot(workspace, "output/model", target, SnapshotLimits(), swap)
    assert not target.exists()


def test_a_file_rewritten_in_place_with_its_old_times_is_noticed(workspace):
    weights = workspace / "output/model/model.safetensors"

    def rewrite() -> None:
        time.sleep(0.05)  # file systems of older kernels count time in ticks of a few milliseconds
        before = weights.stat()
        weights.write_bytes(b"v" * 1000)
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(SubmissionError, match="changed while the snapshot was taken"):
        take_snapshot(workspace, "output/model", workspace.parent / "snapshot", SnapshotLimits(), rewrite)


@pytest.mark.parametrize("change", ["appears", "goes"])
def test_a_file_that_comes_or_goes_meanwhile_is_noticed(workspace, change):
    model = workspace / "output/model"

    def happen() -> None:
        (model / "tokenizer.json").write_text("{}") if change == "appears" else (model / "config.json").unlink()

    with pytest.raises(SubmissionError, match="changed while the snapshot was taken"):
        take_snapshot(workspace, "output/model", workspace.parent / "snapshot", SnapshotLimits(), happen)


def test_a_log_that_grows_beside_the_weights_is_no_reason_to_refuse(workspace):
    model = workspace / "output/model"
    info = take_snapshot(
        workspace,
        "output/model",
        workspace.parent / "snapshot",
        SnapshotLimits(),
        lambda: (model / "train.log").write_text("step 1") and None,
    )
    assert info.skipped == ()


def test_a_large_file_that_a_thread_keeps_writing_is_noticed(workspace):
    weights = workspace / "output/model/model.safetensors"
    weights.write_bytes(os.urandom(1 << 20) * 64)
    done, wrote = threading.Event(), threading.Event()

    def keep_writing() -> None:
        with weights.open("r+b") as file:
            while not done.is_set():
                file.seek(0)
                file.write(os.urandom(4096))
                file.flush()
                wrote.set()

    def see_a_write() -> None:
        """On a busy machine the writer may not run during the copy."""
        time.sleep(0.05)  # file systems of older kernels count time in ticks of a few milliseconds
        wrote.clear()
        assert wrote.wait(120)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        with pytest.raises(SubmissionError, match="changed while the snapshot was taken"):
            take(workspace, see_a_write)
    finally:
        done.set()
        writer.join()


def test_a_leftover_of_a_killed_snapshot_is_cleared(workspace):
    leftover = workspace.parent.parent / "submissions" / "1" / ".snapshot.partial"
    leftover.mkdir(parents=True)
    (leftover / "junk").write_text("half")
    info = snapshot(workspace)
    assert not leftover.exists()
    assert not (info.path / "junk").exists()


def test_limits_follow_the_size_of_the_base_so_that_a_sparse_file_cannot_fill_the_disk(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"0" * 1000)
    limits = snapshot_limits(tmp_path, accept_host_paths=True)
    assert limits.max_bytes == 4_000 + SPARE_BYTES
    assert limits.accept_host_paths


def test_a_device_is_refused_without_being_opened(workspace):
    device = workspace / "output/model/tokenizer.json"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root can make a device")
    assert "'tokenizer.json' is not a regular file" in refusal(workspace)


def take(workspace, on_copied):
    return take_snapshot(workspace, "output/model", workspace.parent / "snapshot", SnapshotLimits(), on_copied)


def test_a_file_that_grows_while_it_is_copied_is_noticed(workspace):
    def grow():
        with (workspace / "output/model/model.safetensors").open("ab") as file:
            file.write(b"more")

    with pytest.raises(SubmissionError, match=r"'model.safetensors' changed while the snapshot was taken"):
        take(workspace, grow)


def test_a_write_through_a_hard_link_is_noticed_and_a_later_one_does_not_reach_the_copy(workspace):
    second_name = workspace / "other-name"
    os.link(workspace / "output/model/model.safetensors", second_name)

    def write():
        time.sleep(0.05)
        second_name.write_bytes(b"v" * 1000)

    with pytest.raises(SubmissionError, match="changed while the snapshot was taken"):
        take(workspace, write)
    info = take(workspace, None)
    second_name.write_bytes(b"u" * 1000)
    assert (info.path / "model.safetensors").read_bytes() == b"v" * 1000


def test_a_folder_on_the_way_that_becomes_a_link_leads_nowhere_else(workspace, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "model"
    elsewhere.mkdir(parents=True)
    (elsewhere / "model.safetensors").write_bytes(b"stolen")

    def swap():
        (workspace / "output").rename(workspace / "moved")
        (workspace / "output").symlink_to(tmp_path / "elsewhere")

    assert (take(workspace, swap).path / "model.safetensors").read_bytes() == b"w" * 1000
    assert "is a symbolic link" in refusal(workspace)


def test_a_sparse_file_that_fits_is_copied_in_full_length(workspace):
    with (workspace / "output/model/model.safetensors").open("wb") as file:
        file.truncate(3 << 20)
    info = snapshot(workspace)
    assert (info.path / "model.safetensors").read_bytes() == bytes(3 << 20)


def test_names_that_would_lead_elsewhere_are_only_names(workspace):
    for odd in (b"a\xff\nb", b"-rf", b"..."):
        (workspace / "output/model" / os.fsdecode(odd)).write_bytes(b"x")
    assert len(snapshot(workspace).skipped) == 3


def test_shards_beside_a_whole_file_of_weights_are_left_aside(workspace):
    folder = workspace / "output" / "model"
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    for number in range(5):
        with (folder / f"model-ballast-{number}.safetensors").open("wb") as file:
            file.truncate(50 << 20)
    info = take_snapshot(workspace, "output/model", workspace.parent / "snapshot", SnapshotLimits(max_bytes=1 << 20))
    assert "model.safetensors" in info.files and not any("ballast" in name for name in info.files)
    assert sum("ballast" in name for name in info.skipped) == 5


def test_a_sparse_file_stays_sparse_and_keeps_its_bytes(workspace):
    folder = workspace / "output" / "model"
    with (folder / "model-1.safetensors").open("wb") as file:
        file.write(b"head")
        file.truncate(64 << 20)
        file.seek(0, 2)
        file.write(b"tail")
    (folder / "model.safetensors").unlink(missing_ok=True)
    target = workspace.parent / "snapshot"
    info = take_snapshot(workspace, "output/model", target, SnapshotLimits())
    copy = target / "model-1.safetensors"
    assert copy.stat().st_size == (64 << 20) + 4 and copy.stat().st_blocks * 512 < 16 << 20
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == info.files["model-1.safetensors"]


def test_what_a_checkpoint_does_not_need_is_dropped(workspace):
    folder = workspace / "output" / "model"
    (folder / "vocab.txt").write_text("ballast")
    info = take_snapshot(workspace, "output/model", workspace.parent / "snapshot", SnapshotLimits())
    needed = set(info.files) - {"vocab.txt"}
    assert "'vocab.txt'" in drop_ballast(info, needed)[0]
    assert {path.name for path in info.path.iterdir()} == needed
    assert drop_ballast(replace(info, files=dict.fromkeys(needed, "")), needed) == []
