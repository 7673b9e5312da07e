"""Stand-ins for container engines: they read the real command line, strictly, and carry it out with bubblewrap.

    python stand_in.py docker STATE ARGUMENTS...
    python stand_in.py apptainer STATE ARGUMENTS...

STATE is a folder; every call is written to STATE/calls. An option that is not known here is an error, so that a
command line can only be one that was looked up. As the engine's daemon would, the stand-in for Docker lets a
container live on when its client is killed.
"""

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

DOCKER_VALUES = {
    *("--name", "--pull", "--log-driver", "--network", "--ipc", "--hostname", "--user", "--cap-drop"),
    *("--security-opt", "--oom-score-adj", "--pids-limit", "--memory", "--memory-swap", "--ulimit", "--shm-size"),
    *("--tmpfs", "--device", "--mount", "--workdir"),
}
DOCKER_FLAGS = {"--interactive", "--read-only"}
APPTAINER_VALUES = {"--no-mount", "--network", "--hostname", "--pwd", "--add-caps", "--mount", "--bind"}
APPTAINER_FLAGS = {"--containall", "--cleanenv", "--no-eval", "--no-init", "--net", "--no-privs"}


def main(kind: str, state: Path, argv: list[str]) -> int:
    with (state / "calls").open("a") as file:
        file.write(json.dumps(argv) + "\n")
    return docker(state, argv) if kind == "docker" else apptainer(state, argv)


def docker(state: Path, argv: list[str]) -> int:
    verb = argv[0]
    if verb == "info":
        print((state / "info.json").read_text())
    elif verb == "image":
        return 0 if (state / "image.tar").exists() else 1
    elif verb == "import":
        (state / "image.tar").write_bytes(sys.stdin.buffer.read())
    elif verb == "inspect":
        assert argv[2] == "{{.State.OOMKilled}}"
        print(str(json.loads((state / argv[3]).read_text())["oom"]).lower())
    elif verb == "kill":
        os.kill(json.loads((state / argv[1]).read_text())["pid"], signal.SIGKILL)
    elif verb == "rm":
        (state / argv[2]).unlink()
    elif verb == "run":
        return docker_run(state, argv[1:])
    else:
        raise SystemExit(f"unknown verb {verb}")
    return 0


def docker_run(state: Path, argv: list[str]) -> int:
    options, (_, *command) = parse(argv, DOCKER_VALUES, DOCKER_FLAGS)
    root = state / "root"
    if not root.exists():
        with tarfile.open(state / "image.tar") as archive:
            archive.extractall(root, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))  # from 3.11.4 on
    bwrap = ["--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--unshare-ipc", "--unshare-uts"]
    bwrap += ["--hostname", one(options, "--hostname"), "--unshare-pid", "--as-pid-1", "--clearenv"]
    assert one(options, "--network") == "none" and one(options, "--cap-drop") == "ALL"
    bwrap += ["--unshare-net", "--size", one(options, "--shm-size"), "--perms", "1777", "--tmpfs", "/dev/shm"]
    for text in options["--tmpfs"]:
        place, _, options_text = text.partition(":")
        settings = dict(part.partition("=")[::2] for part in options_text.split(","))
        bwrap += ["--size", settings["size"], "--perms", settings["mode"], "--tmpfs", place]
    for text in options["--mount"]:
        bwrap += bind(text, {"src": "src", "dst": "dst", "readonly": "readonly"})
    for text in options.get("--device", []):
        host, _, inside = text.partition(":")
        bwrap += ["--dev-bind", host, inside]
    bwrap += ["--remount-ro", "/", "--chdir", one(options, "--workdir")]
    for text in options["--ulimit"]:
        name, _, values = text.partition("=")
        soft, _, hard = values.partition(":")
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (int(soft), int(hard)))
    if os.geteuid() == 0:
        uid, _, gid = one(options, "--user").partition(":")
        command = ["/usr/bin/setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", "--no-new-privs", *command]
    reader, writer = os.pipe()
    child = subprocess.Popen(["bwrap", "--info-fd", str(writer), *bwrap, "--", *command], pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as file:
        pid = json.load(file)["child-pid"]
    (state / one(options, "--name")).write_text(json.dumps({"pid": pid, "oom": False}))
    code = child.wait()
    return 128 - code if code < 0 else code


def apptainer(state: Path, argv: list[str]) -> int:
    if argv == ["--version"]:
        print("apptainer version 1.3.4")
        return 0
    assert argv[0] == "exec"
    options, (root, *command) = parse(argv[1:], APPTAINER_VALUES, APPTAINER_FLAGS)
    assert set(options) >= APPTAINER_FLAGS and one(options, "--network") == "none"
    bwrap = ["--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--unshare-ipc", "--unshare-uts"]
    bwrap += ["--hostname", one(options, "--hostname"), "--unshare-pid", "--as-pid-1", "--unshare-net", "--clearenv"]
    bwrap += ["--perms", "1777", "--tmpfs", "/dev/shm"]
    bwrap += ["--ro-bind", "/sys", "/sys", "--die-with-parent", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        for name in one(options, "--add-caps").split(","):
            bwrap += ["--cap-add", name]
    for text in options["--mount"]:
        bwrap += bind(text, {"source": "src", "destination": "dst", "ro": "readonly"})
    for text in options.get("--bind", []):
        host, _, inside = text.partition(":")
        bwrap += ["--dev-bind", host, inside]
    bwrap += ["--chdir", one(options, "--pwd")]
    os.execvp("bwrap", ["bwrap", *bwrap, "--", *command])


def parse(argv: list[str], values: set[str], flags: set[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options, and what follows them."""
    options: dict[str, list[str]] = {}
    while argv[0].startswith("-"):
        name, *argv = argv
        if name in flags:
            options[name] = []
        elif name in values:
            options.setdefault(name, []).append(argv[0])
            argv = argv[1:]
        else:
            raise SystemExit(f"unknown option {name}")
    return options, argv


def one(options: dict[str, list[str]], name: str) -> str:
    (value,) = options[name]
    return value


def bind(text: str, names: dict[str, str]) -> list[str]:
    (fields,) = csv.reader([text])
    values = {}
    for field in fields:
        key, _, value = field.partition("=")
        values[names.get(key, key)] = value
    assert values.pop("type") == "bind"
    kind = "--bind" if values.pop("readonly", None) is None else "--ro-bind"
    host, inside = values.pop("src"), values.pop("dst")
    assert not values, values
    argv = []
    if not inside.startswith("/usr"):  # engines make folders on the way that everybody can read
        for parent in reversed(Path(inside).parents[:-1]):
            argv += ["--perms", "0755", "--dir", str(parent)]
    return [*argv, kind, host, inside]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
