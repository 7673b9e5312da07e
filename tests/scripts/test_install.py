import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "install.py"
DEAD = "http://127.0.0.1:9/simple"


def load():
    spec = importlib.util.spec_from_file_location("install_script", SCRIPT)
    module = sys.modules["install_script"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = load()


def make_wheel(folder, tag="py3-none-any", build="cpu"):
    """A wheel that says it is the pinned torch."""
    folder.mkdir(parents=True, exist_ok=True)
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    version = f"{pinned.partition('==')[2]}+{build}"
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Dist: no-such-package-anywhere\n"
    with zipfile.ZipFile(folder / f"torch-{version}-{tag}.whl", "w") as wheel:
        info = f"torch-{version}.dist-info"
        wheel.writestr("torch/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def make_index(folder, **wheel):
    """A package index that has torch only, as a folder; returns its address."""
    project = make_wheel(folder / "torch", **wheel)
    links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in project.glob("*.whl"))
    (project / "index.html").write_text(f"<html><body>{links}</body></html>")
    return folder.as_uri()


@pytest.fixture
def target(tmp_path, monkeypatch):
    """Where pip installs to; it has no other settings."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    return tmp_path / "target"


def builds(target):
    return [folder.name.partition("+")[2].partition(".")[0] for folder in target.glob("torch-*")]


def test_without_a_gpu_a_local_wheel_is_tried_first_then_the_index_of_cpu_builds():
    local, index = install.torch_attempts("auto", has_gpu=False)
    assert local.arguments[0] == "--no-index"
    assert index.arguments == (
        "--index-url",
        "https://download.pytorch.org/whl/cpu",
        "--retries",
        "1",
        "--timeout",
        "15",
    )


def test_with_a_gpu_or_by_request_pip_takes_torch_from_its_own_index():
    assert install.torch_attempts("auto", has_gpu=True) == []
    assert install.torch_attempts("pypi", has_gpu=False) == []


@pytest.mark.parametrize("has_gpu", [False, True])
def test_an_index_that_was_asked_for_is_the_only_one_tried(has_gpu):
    (attempt,) = install.torch_attempts("https://mirror/cu128", has_gpu=has_gpu)
    assert attempt.arguments == ("--index-url", "https://mirror/cu128")


def test_pip_takes_the_local_wheel_and_does_not_ask_for_what_torch_needs(target, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(make_wheel(tmp_path / "wheels", build="local")))
    index = make_index(tmp_path / "index")
    assert install.install_torch(Path(sys.executable), install.torch_attempts("auto", False, index))
    assert builds(target) == ["local"]


def test_a_local_wheel_for_another_python_is_passed_over(target, tmp_path, monkeypatch):
    wheels = make_wheel(tmp_path / "wheels", tag="cp39-cp39-linux_x86_64", build="local")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    index = make_index(tmp_path / "index")
    assert install.install_torch(Path(sys.executable), install.torch_attempts("auto", False, index))
    assert builds(target) == ["cpu"]


def test_an_index_that_cannot_be_reached_or_has_no_build_for_this_python_fails_and_nothing_is_installed(
    target, tmp_path
):
    foreign = make_index(tmp_path / "index", tag="cp39-cp39-linux_x86_64")
    for index in (DEAD, foreign):
        assert not install.install_torch(Path(sys.executable), install.torch_attempts("auto", False, index))
    assert not builds(target)


@pytest.mark.parametrize(
    "line, progress",
    [
        ("  Downloading torch-2.13.0-cp311-cp311-linux_x86_64.whl (183.9 MB)\n",
         "downloading torch-2.13.0-cp311-cp311-linux_x86_64.whl (183.9 MB)"),
        ("Downloading https://index/nvidia_cudnn-9.1-py3-none-linux_x86_64.whl (1.2 GB)\n",
         "downloading nvidia_cudnn-9.1-py3-none-linux_x86_64.whl (1.2 GB)"),
        ("  Downloading trl-1.8.0-py3-none-any.whl.metadata (11 kB)\n", ""),
        ("Collecting numpy<3\n", ""),
        ("Installing collected packages: a, b, c\n", "installing 3 packages"),
        ("  Building wheel for fast-downward-textworld (setup.py): started\n",
         "building fast-downward-textworld (setup.py): started"),
        ("\n", ""),
    ],
)  # fmt: skip
def test_large_downloads_are_printed_with_their_size_and_the_rest_of_pip_is_not(line, progress):
    assert install.progress_of(line) == progress


def test_what_pip_downloads_is_printed_while_it_works_and_a_failure_is_one(tmp_path, capsys):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '  Downloading torch-1.whl (183.9 MB)'\necho 'Collecting x'\nexit 3\n")
    python.chmod(0o755)
    assert not install.pip(python, "torch")
    assert capsys.readouterr().out == "  downloading torch-1.whl (183.9 MB)\n"


@pytest.mark.parametrize(
    ("program", "found"),
    [("echo 'GPU 0: NVIDIA H100 (UUID: GPU-0)'", True), ("echo 'No devices were found'; exit 6", False), (None, False)],
)
def test_a_gpu_is_what_nvidia_smi_lists(tmp_path, monkeypatch, program, found):
    if program is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.has_gpu() is found


def run_script(*arguments, path):
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def test_size_time_and_build_are_told_before_anything_is_installed_and_a_missing_compiler_ends_it(tmp_path):
    done = run_script("test", "--venv", str(tmp_path / "venv"), path=str(tmp_path))
    assert done.returncode == 1
    assert "GiB on disk" in done.stdout and "minutes" in done.stdout and "the CPU build of torch" in done.stdout
    assert done.stderr.startswith("error: cc, c++, make") and done.stderr.count("\n") == 1
    assert not (tmp_path / "venv").exists()


def test_a_disk_without_room_is_told_before_anything_is_installed(tmp_path):
    part = install.PARTS["demo"]
    with pytest.raises(install.CannotInstall, match=r"GiB free, about 1000000000\.0 are needed"):
        install.check_machine(part, tmp_path / "venv", disk_gib=1e9)
    install.check_machine(part, tmp_path, disk_gib=1e9)  # an environment that exists is only completed


def test_programs_of_the_environment_are_on_the_path_of_what_pip_builds(tmp_path):
    """Some packages call `python` when they are built; stock Debian has none."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    )
    (package / "b.py").write_text(
        "import shutil, pathlib\n"
        "def build_wheel(folder, *rest):\n"
        f"    pathlib.Path({str(tmp_path / 'found')!r}).write_text(str(shutil.which('python')))\n"
        "    raise SystemExit(1)\n"
    )
    environment = tmp_path / "venv" / "bin"
    environment.mkdir(parents=True)
    (environment / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (environment / "python").chmod(0o755)
    assert not install.pip(environment / "python", "--no-index", "--target", str(tmp_path / "t"), str(package))
    assert (tmp_path / "found").read_text() == str(environment / "python")


def test_the_script_starts_under_pythons_that_are_too_old_so_that_it_can_say_so():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize(
    ("goal", "part"),
    [
        ("demo", "demo"),
        ("check", "dev"),
        ("format", "dev"),
        ("test-near", "dev"),
        ("test-fast", "dev"),
        ("test", "test"),
    ],
)
def test_make_installs_for_each_goal_only_what_it_needs_and_passes_the_index_on(tmp_path, goal, part):
    command = ["make", "--dry-run", goal, f"VENV={tmp_path}", "TORCH_INDEX=https://mirror/cu128"]
    plain = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKEOVERRIDES", "PYTHON"}}
    told = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True).stdout
    scripts = [line for line in told.splitlines() if "install.py" in line]
    assert scripts == [f'python3 scripts/install.py {part} --venv {tmp_path} --torch-index "https://mirror/cu128"']


@pytest.mark.parametrize(
    ("part", "stamps"), [("demo", {"demo"}), ("dev", {"demo", "dev"}), ("test", {"demo", "dev", "test"})]
)
def test_an_installation_counts_for_every_smaller_one(tmp_path, part, stamps):
    command = ["make", f"VENV={tmp_path}", "PYTHON=true", f"{tmp_path}/.installed-{part}"]
    plain = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKEOVERRIDES"}}
    subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {f".installed-{stamp}" for stamp in stamps}


def test_only_what_is_installed_for_all_tests_needs_a_compiler():
    assert [name for name, part in install.PARTS.items() if part.programs] == ["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    engine = set(project["optional-dependencies"]["household"])
    assert not engine & set(project["optional-dependencies"]["dev"])
    assert not [one for one in project["optional-dependencies"]["dev"] if "[household]" in one]


def test_what_is_installed_bare_comes_last_pinned_and_without_its_requirements(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pip").touch()
    (programs / "python").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    (programs / "python").chmod(0o755)
    part = install.Part("a part", ".[dev]", 0.0, "1", (), ("openenv",), ("joblib", "scikit-learn"))
    install.install(part, tmp_path, install.PYPI)
    *_, whole, bare, apart = (tmp_path / "said").read_text().splitlines()
    assert whole.endswith("--editable .[dev]") and "--no-deps" not in whole
    assert bare.endswith("--no-deps openenv") and "--constraint" in bare
    assert apart.endswith(f"--no-deps --upgrade --target {tmp_path}/apart joblib scikit-learn"), "no process imports it"
    assert install.PARTS["test"].bare == ("openenv",)
    assert install.PARTS["demo"].bare == install.PARTS["demo"].apart == ()


def test_what_the_package_and_each_extra_ask_for_is_pinned_to_a_version_that_they_accept():
    pins = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for members in extras.values() for one in members)]
    unmet = {
        str(requirement): pins.get(canonicalize_name(requirement.name))
        for requirement in map(Requirement, asked)
        if canonicalize_name(requirement.name) != canonicalize_name(project["name"])
        and not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
    }
    assert unmet == {}
