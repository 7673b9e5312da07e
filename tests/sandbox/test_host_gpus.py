"""GPUs by number: which device files a sandbox shows. The device files of these tests are plain files."""

from pathlib import Path

import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Bubblewrap, Unsandboxed
from agent2.sandbox.host import gpu_devices, gpu_environment, has_root_rights, known_gpus
from agent2.sandbox.spec import Limits, SandboxSpec, check_spec


def _devices(folder: Path, *names: str) -> Path:
    devices = folder / "dev"
    devices.mkdir()
    for name in names:
        (devices / name).write_text(name)
        (devices / name).chmod(0o666)
    return devices


@pytest.fixture
def devices(tmp_path):
    names = ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps")
    return _devices(tmp_path, *names)


def test_the_named_gpus_and_what_all_of_them_need(devices):
    names = [device.name for device in gpu_devices((2, 0), devices)]
    assert names == ["nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    assert gpu_devices((), devices) == []
    assert known_gpus(devices) == [0, 1, 2]


def test_the_sandbox_shows_exactly_the_named_device_files(devices, tmp_path, make_sandbox):
    make_sandbox(False)
    sandbox = Bubblewrap(devices=devices)
    sandbox.prepare_workspace(tmp_path / "workspace")
    program = """
import os
print(sorted(n for n in os.listdir("/dev") if "nvidia" in n), os.environ["CUDA_VISIBLE_DEVICES"])
print(open("/dev/nvidia1", "r+").read(), os.path.isdir("/sys/bus/pci") or not os.path.isdir("/sys/devices/pci0000:00"))
try:
    open("/dev/new", "w")
except OSError as error:
    print(error.strerror)
"""
    spec = SandboxSpec(("python", "-c", program), tmp_path / "workspace", tmp_path / "log", gpus=(1, 2))
    end = sandbox.start(spec).wait(120)
    assert end is not None and end.code == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().splitlines() == [
        "['nvidia-uvm', 'nvidia-uvm-tools', 'nvidia1', 'nvidia2', 'nvidiactl'] 0,1",
        "nvidia1 True",
        "Read-only file system",
    ]


def test_without_a_sandbox_a_program_is_told_its_gpus_by_their_own_numbers(tmp_path):
    program = "import os; print([os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'CUDA_DEVICE_ORDER')])"
    for gpus, told in (((1, 2), "['1,2', 'PCI_BUS_ID']"), ((), "[None, None]")):
        (tmp_path / "workspace").mkdir(exist_ok=True)
        spec = SandboxSpec(("python", "-c", program), tmp_path / "workspace", tmp_path / f"log-{len(gpus)}", gpus=gpus)
        assert Unsandboxed().start(spec).wait(120).code == 0
        assert (tmp_path / f"log-{len(gpus)}").read_text().strip() == told


def test_without_gpus_none_is_seen(default_runner):
    program = "import os; print([n for n in os.listdir('/dev') if 'nvidia' in n], 'CUDA_VISIBLE_DEVICES' in os.environ)"
    assert default_runner.python(program).log == "[] False\n"


def test_a_gpu_that_is_not_there_names_those_that_are(devices, tmp_path):
    with pytest.raises(SandboxError, match=r"GPU 7: .*nvidia7 does not exist; choose one of 0, 1, 2, or .*modprobe"):
        gpu_devices((0, 7), devices)
    (devices / "nvidia-uvm").unlink()
    with pytest.raises(SandboxError, match=r"GPUs need .*nvidia-uvm.*nvidia-modprobe"):
        gpu_devices((0,), devices)


def test_gpus_are_numbers_and_each_is_named_once(tmp_path):
    for gpus in ((1, 1), (-1,)):
        with pytest.raises(SandboxError, match="name each once"):
            check_spec(SandboxSpec(("true",), tmp_path, tmp_path / "log", gpus=gpus))


def test_inside_gpus_are_counted_from_0():
    assert gpu_environment((3, 5)) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert gpu_environment(()) == {}


def test_containment_names_the_gpus():
    rows = {row.aspect: row.how for row in Bubblewrap(as_root=has_root_rights()).containment(Limits(), gpus=(3,))}
    assert rows["GPUs"] == "device files of 3 only; their memory is not limited"
