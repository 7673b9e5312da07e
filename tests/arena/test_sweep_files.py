import os
import shutil

import pytest
import yaml
from PIL import Image

from agent2.arena.sweep import SweepSpec, at_folder
from agent2.arena.sweep_files import changed_file, file_digests
from agent2.arena.tasks import load_task
from trial_builders import write_agent

ROWS = "question,answer\n" + "".join(f"What is {n} plus {n}?,{2 * n}\n" for n in range(40))


@pytest.fixture
def own(tmp_path):
    """A task on data of its own, an agent and a driver, each in the folder of a user."""
    data = tmp_path / "sums"
    data.mkdir()
    (data / "sums.csv").write_text(ROWS)
    declared = {"name": "sums", "version": "1.0", "files": {"all": "sums.csv"}, "prompt": "{question}"}
    (data / "benchmark.yaml").write_text(yaml.safe_dump(declared | {"answer": "answer", "scorer": "exact"}))
    record = load_task("arithmetic").model_dump(mode="json") | {"name": "sums", "benchmark": "./sums"}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    write_agent(tmp_path / "mine", "print(1)")
    (tmp_path / "driver.yaml").write_text("name: d\n")
    return tmp_path


def digests(folder):
    return file_digests([str(folder / "task.yaml")], [str(folder / "mine")], [str(folder / "driver.yaml"), "openai/x"])


def test_every_file_that_decides_a_trial_is_covered(own):
    names = {os.path.relpath(name, own) for name in digests(own)}
    assert names == {
        "task.yaml",
        "sums/benchmark.yaml",
        "sums/sums.csv",
        "mine/agent.yaml",
        "mine/main.py",
        "driver.yaml",
    }


def test_a_changed_row_of_data_of_the_same_size_and_time_is_named(own):
    before, data = digests(own), own / "sums" / "sums.csv"
    status = data.stat()
    data.write_text(ROWS.replace(",78\n", ",79\n"))
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert data.stat().st_size == status.st_size
    assert changed_file(before, digests(own)) == f"{data} was changed"


def test_an_added_and_a_removed_file_of_an_agent_are_named(own):
    before = digests(own)
    (own / "mine" / "recipe.txt").write_text("x")
    assert changed_file(before, digests(own)) == f"{own / 'mine' / 'recipe.txt'} was added"
    (own / "mine" / "recipe.txt").unlink()
    (own / "mine" / "main.py").unlink()
    assert changed_file(before, digests(own)) == f"{own / 'mine' / 'main.py'} was removed"


def test_a_hidden_file_of_an_agent_counts_and_links_in_a_circle_stop_nothing(own):
    (own / "mine" / "loop").symlink_to("loop")
    before = digests(own)
    (own / "mine" / ".prompt.txt").write_text("x")
    assert changed_file(before, digests(own)) == f"{own / 'mine' / '.prompt.txt'} was added"


def test_of_a_sweep_of_an_earlier_version_which_names_no_files_nothing_is_known(own):
    now = digests(own)
    assert changed_file({"agents/mine": "0", **now}, now) == changed_file({str(own / "mine"): "0"}, now) == ""


def test_caches_and_new_times_change_nothing(own):
    before = digests(own)
    for name in (".DS_Store", ".git/HEAD", "__pycache__/main.pyc", "lib/__pycache__/x.pyc"):
        for folder in (own / "mine", own / "sums"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x")
    os.utime(own / "sums" / "sums.csv")
    assert changed_file(before, digests(own)) == ""


def test_pictures_and_documents_behind_a_task_are_covered(own):
    data = own / "sums"
    picture = data / "shots" / "a.png"
    picture.parent.mkdir()
    Image.new("RGB", (20, 20)).save(picture)
    (data / "sums.csv").write_text("question,answer,shot\nWhat?,1,shots/a.png\nWhere?,2,\n")
    declared = yaml.safe_load((data / "benchmark.yaml").read_text()) | {"pictures": "shot"}
    (data / "benchmark.yaml").write_text(yaml.safe_dump(declared))
    before = digests(own)
    assert str(picture) in before
    picture.write_bytes(picture.read_bytes() + b"x")
    assert changed_file(before, digests(own)) == f"{picture} was changed"
    searched = {"documents": "pages", "environment": "search", "max_turns": 5}
    (data / "pages").mkdir()
    (data / "pages" / "one.txt").write_text("sums")
    del declared["pictures"]
    (data / "benchmark.yaml").write_text(yaml.safe_dump(declared | searched))
    assert str(data / "pages" / "one.txt") in digests(own)


def test_a_broken_file_hides_no_other_one_and_is_named(own, caplog):
    data = own / "sums"
    declared = yaml.safe_load((data / "benchmark.yaml").read_text())
    files = {"train": "sums.csv", "test": "hidden.jsonl"}
    (data / "hidden.jsonl").write_text('{"question": "What is 1 plus 1?", "answer": "2", "shot": "b.png"}\n')
    (data / "sums.csv").write_text("question,answer,shot\nWhat is 2 plus 2?,4,a.png\n")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (20, 20)).save(data / name)
    scorer = {"scorer": "./own_scorer.py:Scorer", "pictures": "shot"}
    (data / "benchmark.yaml").write_text(yaml.safe_dump(declared | scorer | {"files": files}))
    sound = digests(own)
    (data / "sums.csv").write_text("question,answer,shot\nWhat is 2 plus 2?,4\n")
    broken = digests(own)
    for name in ("benchmark.yaml", "sums.csv", "hidden.jsonl", "b.png"):
        assert str(data / name) in broken, name
    assert any("sums.csv:2: has 2 fields, the header 3" in record.message for record in caplog.records)
    assert changed_file(sound, broken) == f"{data / 'sums.csv'} was changed", "a.png, which it named, is still there"
    (data / "hidden.jsonl").write_text('{"question": "What is 1 plus 1?", "answer": "3", "shot": "b.png"}\n')
    assert changed_file(broken, digests(own)) == f"{data / 'hidden.jsonl'} was changed"


def test_data_that_differ_from_their_pin_a_broken_held_out_task_and_a_broken_agent_hide_nothing(own):
    declared = yaml.safe_load((own / "sums" / "benchmark.yaml").read_text())
    (own / "sums" / "benchmark.yaml").write_text(yaml.safe_dump(declared | {"sha256": {"all": "0" * 64}}))
    task = yaml.safe_load((own / "task.yaml").read_text())
    (own / "task.yaml").write_text(yaml.safe_dump(task | {"held_out": ["./other.yaml"]}))
    (own / "other.yaml").write_text("name: [")
    (own / "mine" / "agent.yaml").write_text("name: [")
    names = {os.path.relpath(name, own) for name in digests(own)}
    assert names == {
        *("task.yaml", "other.yaml", "sums/benchmark.yaml", "sums/sums.csv"),
        *("mine/agent.yaml", "mine/main.py", "driver.yaml"),
    }


def test_a_folder_that_is_no_agent_is_not_read(own, caplog):
    (own / "mine" / "agent.yaml").unlink()
    assert not any("mine" in name for name in digests(own))
    assert "agent.yaml" in caplog.text


def test_what_is_packaged_or_unreadable_has_no_digest(own):
    assert file_digests(["arithmetic"], ["sft"], ["openai/gpt"]) == {}
    shutil.rmtree(own / "sums")
    assert str(own / "task.yaml") in digests(own), "a broken task fails its own trials"


def test_a_sweep_of_an_earlier_version_without_digests_is_resumed(own):
    assert changed_file({}, digests(own)) == ""


def test_relative_names_begin_at_the_folder_of_the_sweeps_file(own, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    spec = SweepSpec(
        name="s",
        tasks=["task.yaml", "arithmetic"],
        agents=["./mine", "sft", "./mine/plug.py:AGENT", "pack.agents:mine"],
        drivers=["driver.yaml", "openai/gpt"],
        seeds=[0],
    )
    found = at_folder(spec, own)
    assert found.tasks == [str(own / "task.yaml"), "arithmetic"]
    assert found.agents == [str(own / "mine"), "sft", f"{own / 'mine' / 'plug.py'}:AGENT", "pack.agents:mine"]
    assert found.drivers == [str(own / "driver.yaml"), "openai/gpt"]
    assert at_folder(found, elsewhere) == found
