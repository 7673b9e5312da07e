"""The Docker and Apptainer (also SingularityCE) back ends: the same view as bubblewrap's, by a container engine.

Both show an empty root with the host's /usr, the toolkit and the mounts of the spec, so no image with libraries is
fetched, and no image decides what a trial measures. Engines do not pass on descriptors, so forward.py connects to a
socket here; when the harness is gone, the connection closes and the container ends itself. GPUs are passed one by
one, with the driver libraries of the host's /usr: that shows exactly the named ones and needs no container toolkit
and no --nv.

Docker: the image is made on first use. No network, no capabilities, no new privileges, a read-only root, a user of
its own, limits by the engine's control groups. With a user of its own the container needs an engine that runs as
root; under a rootless engine the program is root of the engine's user namespace, without capabilities. An engine on
another machine or in a virtual machine that does not share this file system does not work. A user who may start
containers is as good as root on the host; that is the harness, never the program.

Apptainer, for clusters: the image is an empty folder made for each program. Own mount, process, IPC, host-name and
network namespaces, a cleared environment, no capabilities, no new privileges. As root the program becomes a host
user of its own; otherwise it keeps ours, in a user namespace or by the runtime's set-uid starter, and the number of
processes is counted over everything that this user runs on the host. Limits are bubblewrap's (control group where we
may make one, resource limits, watchdog), except that /tmp and the home folder are on disk and are watched together
with the workspace. What an administrator's apptainer.conf adds or forbids is not covered; `require` tries it on a
program that does nothing.
"""

import hashlib
import io
import json
import logging
import os
import re
import secrets
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import SandboxError
from agent2.sandbox import host
from agent2.sandbox.backends import OwnUserSandbox
from agent2.sandbox.host import FORWARDER, gpu_devices, visible_toolkit
from agent2.sandbox.limits import (
    OWN_PROCESSES,
    Launch,
    LimitEnforcer,
    call_filter_hex,
    contained_plan,
    enforced_by,
    make_enforcer,
    rlimits,
    tasks_of_user,
)
from agent2.sandbox.network import with_network
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import (
    GIB,
    HOME,
    PRIVATE,
    WORKSPACE,
    Containment,
    Limits,
    Mount,
    Network,
    SandboxSpec,
    Strength,
    check_spec,
    common_rows,
)

logger = logging.getLogger(__name__)

LINK = f"{PRIVATE}/link"
EMPTY_FOLDERS = ("dev", "etc", "home", "home/agent", "proc", "run", "run/agent2", "sys", "tmp", "usr", "workspace")
COMMAND = (str(host.interpreter()), "-I", "-S", f"{PRIVATE}/forward.py", LINK)
"""What runs first in a container."""

OnEnd = tuple[Callable[[], None], ...]
"""What is called when the program has ended."""
IMAGE = "agent2-empty-root"
DOCKER_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")
"""The engine makes the other files of /etc itself."""
ASK_S = 60.0
BINARIES = ("apptainer", "singularity")
CONTAIN = (
    *("--containall", "--cleanenv", "--no-eval", "--no-init", "--no-mount", "home,tmp,bind-paths"),
    *("--net", "--network", "none", "--hostname", "agent2", "--no-privs", "--pwd", "/"),
)
ROOT_CAPABILITIES = "CAP_SETUID,CAP_SETGID,CAP_SETPCAP"
"""As root, retained until forward.py has changed the user."""
APPTAINER_FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/nsswitch.conf", "/etc/resolv.conf")
PROBE_S = 120.0


@dataclass(frozen=True, slots=True)
class ContainerSetup:
    """What the host prepared for one container: its folder, the socket that forward.py connects to, and its mounts."""

    folder: Path
    listener: socket.socket
    binds: tuple[Mount, ...]
    """Everything that the container shows of the host, outer folders first."""

    def close(self) -> None:
        """Remove what was prepared."""
        self.listener.close()
        shutil.rmtree(self.folder, onerror=_log_leftover)


def start_container(
    spec: SandboxSpec,
    toolkit_binds: Iterable[Path],
    uid: int,
    etc_paths: Iterable[str],
    first_uid: int,
    make_launch: Callable[[SandboxSpec, ContainerSetup, OnEnd], Launch],
) -> SandboxProcess:
    """Prepare and start a container with the network that the spec asks for; setup and network end with it.

    make_launch: from the spec with the network's ports and variables, the setup, and what to call at the end. The
    other arguments are those of `set_up_container`. Raises SandboxError, and then leaves nothing behind.
    """
    spec, proxy = with_network(spec)
    on_end: list[Callable[[], None]] = [] if proxy is None else [proxy.close]
    try:
        setup = set_up_container(spec, toolkit_binds, uid, etc_paths, first_uid=first_uid)
        on_end.insert(0, setup.close)
        launch = make_launch(spec, setup, tuple(on_end))
    except BaseException:
        for close in on_end:
            close()
        raise
    return SandboxProcess(launch)  # which closes them itself, also where it does not start


def _log_leftover(_: object, path: str, error: tuple[object, BaseException, object]) -> None:
    """Log what cannot be removed: a program may have locked its own temporary files away from us."""
    logger.warning("%s could not be removed: %s", path, error[1])


def set_up_container(
    spec: SandboxSpec, toolkit_binds: Iterable[Path], uid: int, etc_paths: Iterable[str], *, first_uid: int
) -> ContainerSetup:
    """Make the folder, the files named in `etc_paths` (of `host.etc_files`) and the socket.

    uid: the program's user, as the host sees it; the ports are handed to it. first_uid: the user that the container
    starts with, which the socket is handed to.
    """
    folder = Path(tempfile.mkdtemp(prefix="agent2-container-"))
    folder.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(folder / "link"))
        listener.listen(1)
        for path, owner in [(folder / "link", first_uid), *((port, uid) for port in spec.ports.values())]:
            if path.stat().st_uid != owner:
                os.chown(path, owner, owner)
        files = host.etc_files(uid)
        binds = system_mounts()
        for name in etc_paths:
            etc_file = folder / name.strip("/").replace("/", "-")
            etc_file.write_text(files[name])
            etc_file.chmod(0o644)
            binds.append(Mount(etc_file, name))
        binds += [Mount(FORWARDER.resolve(), f"{PRIVATE}/forward.py"), Mount(folder / "link", LINK)]
        binds += [Mount(path.resolve(), f"{PRIVATE}/ports/{port}") for port, path in spec.ports.items()]
        binds += [Mount(path.resolve(), str(path)) for path in toolkit_binds]
        binds += [Mount(mount.host.resolve(), mount.inside, mount.writable) for mount in spec.mounts]
        binds.append(Mount(spec.workspace.resolve(), WORKSPACE, writable=True))
    except BaseException:
        listener.close()
        shutil.rmtree(folder)
        raise
    return ContainerSetup(folder, listener, tuple(binds))


def system_mounts() -> list[Mount]:
    """The host's /usr and the few files of /etc; engines bring a /sys of their own."""
    system = (path for kind, path in host.system_binds() if kind == "bind")
    return [Mount(Path(path).resolve(), path) for path in system if not path.startswith("/sys/")]


def root_links() -> dict[str, str]:
    """Links of the empty root, such as bin -> usr/bin: name -> target."""
    return {path.strip("/"): os.readlink(path) for kind, path in host.system_binds() if kind == "link"}


def make_root(folder: Path, binds: Iterable[Mount]) -> None:
    """Make the empty root in a folder, with a mount point for each bind; readable by every user."""
    _make_folder(folder)
    for name in EMPTY_FOLDERS:
        _make_folder(folder / name)
    for name, target in root_links().items():
        (folder / name).symlink_to(target)
    for bind in binds:
        mount_point = folder / bind.inside.strip("/")
        if mount_point.exists() or bind.inside.startswith(("/usr/", "/sys/", "/tmp/", f"{HOME}/")):
            continue  # it is inside what is mounted there
        for parent in reversed(mount_point.relative_to(folder).parents):
            if not (folder / parent).exists():
                _make_folder(folder / parent)
        if bind.host.is_dir():
            _make_folder(mount_point)
        else:
            mount_point.touch()


def _make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)  # whatever the umask says


def root_archive() -> bytes:
    """The empty root as a tar file, the same bytes each time on the same host: the image is named by their digest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in EMPTY_FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, target in sorted(root_links().items()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return packed.getvalue()


def csv_field(text: str) -> str:
    """One field of a line of CSV, which is how engines take mounts."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """What a running engine says about itself."""

    version: str
    is_rootless: bool
    limits_memory: bool
    limits_processes: bool


class Docker(OwnUserSandbox):
    """Runs programs in Docker containers."""

    name = "docker"

    def __init__(self, binary: str = "docker", *, devices: Path = Path("/dev")) -> None:
        """binary: name or path of the docker client. devices: where the device files of GPUs are."""
        super().__init__(None, devices)
        self._binary = binary
        self._engine: DockerEngine | None = None

    def user_of(self, workspace: Path) -> int:
        """The host user that programs with this workspace run as; under a rootless engine, ours."""
        return os.geteuid() if self.require().is_rootless else super().user_of(workspace)

    def require(self) -> DockerEngine:
        """The engine, after asking once whether it answers.

        Raises SandboxError with one sentence that says what to do.
        """
        if self._engine is None:
            self._engine = self._ask_engine()
        return self._engine

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly, as far as the engine says so."""
        engine = self.require()
        by_engine = "control group of the engine"
        user = "root of the engine's user namespace" if engine.is_rootless else "own user"
        return [
            Containment("filesystem", Strength.HARD, f"container with a read-only empty root, explicit binds, {user}"),
            Containment("host processes", Strength.HARD, "process and IPC namespaces of the container"),
            *common_rows(limits, network, gpus),
            Containment("process count", Strength.HARD, f"{limits.processes}: {by_engine}")
            if engine.limits_processes
            else Containment("process count", Strength.NONE, "this engine cannot limit it"),
            Containment("memory", Strength.HARD, f"{by_engine}: {limits.memory_gib:g} GiB")
            if engine.limits_memory
            else Containment("memory", Strength.SOFT, f"watchdog at {limits.memory_gib:g} GiB"),
        ]

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the engine does not answer.
        """
        check_spec(spec)
        self.require()
        gpu_devices(spec.gpus, self._devices)  # refuses an unknown GPU before the image is made
        image = self._image()
        uid = self.own_workspace(spec)
        binds = visible_toolkit(spec, other_user=uid != os.geteuid())

        def make_launch(networked: SandboxSpec, setup: ContainerSetup, on_end: OnEnd) -> Launch:
            return self._launch(networked, setup, image, uid, on_end)

        return start_container(spec, binds, uid, DOCKER_FILES, uid, make_launch)

    def _launch(self, spec: SandboxSpec, setup: ContainerSetup, image: str, uid: int, on_end: OnEnd) -> Launch:
        name = f"agent2-{os.getpid()}-{secrets.token_hex(4)}"
        memory_files = self.require().limits_memory or bool(spec.gpus)  # see `call_filter`
        calls = call_filter_hex(memory_files=memory_files)
        return Launch(
            argv=self.command(spec, setup, name, image, uid),
            plan=contained_plan(spec, uid=None, rlimits={}, leash=True, calls=calls),
            spec=spec,
            enforcer=Container(self._binary, name, self.require().limits_memory),
            listener=setup.listener,
            on_end=on_end,
        )

    def command(self, spec: SandboxSpec, setup: ContainerSetup, name: str, image: str, uid: int) -> tuple[str, ...]:
        """The whole command line of one container."""
        limits = spec.limits
        memory, tmp_bytes = str(int(limits.memory_gib * GIB)), int(limits.tmp_gib * GIB)
        user = "0:0" if self.require().is_rootless else f"{uid}:{uid}"
        argv = [self._binary, "run", "--name", name, "--pull", "never", "--interactive", "--log-driver", "none"]
        argv += ["--network", "none", "--ipc", "private", "--hostname", "agent2", "--user", user, "--read-only"]
        argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--oom-score-adj", "1000"]
        if Path("/sys/fs/selinux/enforce").exists():
            argv += ["--security-opt", "label=disable"]  # else the labels of the host's files keep the container out
        # memory and swap together have the limit of memory alone: no swap is left
        argv += ["--pids-limit", str(limits.processes + OWN_PROCESSES), "--memory", memory, "--memory-swap", memory]
        argv += ["--ulimit", f"nofile={limits.open_files}:{limits.open_files}", "--ulimit", "core=0:0"]
        size = int(limits.file_size_gib * GIB)
        argv += ["--ulimit", f"fsize={size}:{size}", "--shm-size", str(tmp_bytes)]
        for folder, mode in (("/tmp", "1777"), (HOME, "0777")):
            argv += ["--tmpfs", f"{folder}:rw,exec,nosuid,nodev,size={tmp_bytes},mode={mode}"]
        for device in gpu_devices(spec.gpus, self._devices):
            argv += ["--device", f"{device}:/dev/{device.name}"]
        for bind in setup.binds:
            fields = ["type=bind", csv_field(f"src={bind.host}"), csv_field(f"dst={bind.inside}")]
            argv += ["--mount", ",".join(fields if bind.writable else [*fields, "readonly"])]
        return (*argv, "--workdir", "/", image, *COMMAND)

    def _ask_engine(self) -> DockerEngine:
        address = os.environ.get("DOCKER_HOST", "unix://")
        if not address.startswith("unix://"):
            raise SandboxError(
                f"DOCKER_HOST is {address}: an engine elsewhere cannot show this host's files; unset it, or use "
                "--set sandbox=bubblewrap"
            )
        answer = _run_docker(self._binary, "info", "--format", "{{json .}}")
        try:
            info = json.loads(answer.stdout)
        except ValueError:
            info = {}
        if answer.returncode != 0 or not info.get("ServerVersion"):
            lines = (answer.stderr.strip() or "; ".join(info.get("ServerErrors") or ["it said nothing"])).splitlines()
            raise SandboxError(
                f"the Docker engine does not answer ({lines[-1]}); start it (systemctl start docker) and let this user "
                "use it (group docker), or use --set sandbox=bubblewrap"
            )
        options = " ".join(info.get("SecurityOptions") or [])
        return DockerEngine(
            str(info["ServerVersion"]),
            is_rootless="name=rootless" in options,
            limits_memory=bool(info.get("MemoryLimit")),
            limits_processes=bool(info.get("PidsLimit")),
        )

    def _image(self) -> str:
        """The empty root, made if it is not there yet. Raises SandboxError."""
        archive = root_archive()
        image = f"{IMAGE}:{hashlib.sha256(archive).hexdigest()[:12]}"
        if _run_docker(self._binary, "image", "inspect", "--format", "{{.Id}}", image).returncode == 0:
            return image
        imported = _run_docker(self._binary, "import", "-", image, stdin=archive)
        if imported.returncode != 0:
            raise SandboxError(
                f"the empty image {image} cannot be made: {imported.stderr.strip()[-300:]}; free disk space?"
            )
        return image


class Container(LimitEnforcer):
    """One container; its engine holds the limits, puts processes into its groups, and remembers what it enforced."""

    def __init__(self, binary: str, name: str, limits_memory: bool) -> None:
        self._binary = binary
        self._name = name
        self.controllers = frozenset({"memory", "pids"} if limits_memory else {"pids"})

    def broke(self) -> str | None:
        """Memory, if the engine reports that the kernel killed for it; None also if the engine does not answer."""
        try:
            oom_killed = _run_docker(self._binary, "inspect", "--format", "{{.State.OOMKilled}}", self._name).stdout
        except SandboxError as error:
            logger.warning("container %s: it is not known which limit it reached: %s", self._name, error)
            return None
        return "memory" if oom_killed.strip() == "true" else None

    def kill(self) -> None:
        """End the container."""
        _run_docker(self._binary, "kill", self._name)

    def remove(self) -> None:
        """Remove the container."""
        try:
            _run_docker(self._binary, "rm", "--force", self._name)
        except SandboxError as error:
            logger.warning("container %s could not be removed: %s", self._name, error)


def _run_docker(binary: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the Docker client; an error of the engine is in what it returns. Raises SandboxError without an answer."""
    try:
        answer = subprocess.run([binary, *arguments], input=stdin, capture_output=True, timeout=ASK_S, check=False)
    except OSError as error:
        raise SandboxError(
            f"{binary}: Docker is not installed ({error.strerror}); install it (docs.docker.com/engine/install), "
            "or use --set sandbox=bubblewrap"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"{binary} {arguments[0]} did not answer in {ASK_S:g} s; look at the Docker engine"
        ) from error
    return subprocess.CompletedProcess(
        answer.args, answer.returncode, answer.stdout.decode(errors="replace"), answer.stderr.decode(errors="replace")
    )


class Apptainer(OwnUserSandbox):
    """Runs programs in Apptainer containers."""

    name = "apptainer"

    def __init__(self, binary: str | None = None, *, as_root: bool | None = None, devices: Path = Path("/dev")) -> None:
        """binary: name or path; None looks for apptainer, then singularity. as_root: None asks the kernel.

        devices: where the device files of GPUs are.
        """
        super().__init__(as_root, devices)
        installed = [name for name in BINARIES if shutil.which(name)]
        self._binary = binary or (installed[0] if installed else BINARIES[0])
        self._version: str | None = None

    def require(self) -> str:
        """The runtime's version, after trying it once.

        Raises SandboxError with one sentence that says what to do.
        """
        if self._version is None:
            answer = _run_apptainer([self._binary, "--version"])
            version = re.search(r"\d+\.\d+(\.\d+)?", answer.stdout)
            if answer.returncode != 0 or version is None:
                raise SandboxError(
                    f"{self._binary} --version said {answer.stdout + answer.stderr!r}; install Apptainer 1.1 or newer"
                )
            self._probe()
            self._version = version.group()
        return self._version

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly on this host."""
        held = enforced_by(self._as_root)
        user = "own host user" if self._as_root else "this user"
        disk = Containment("disk", Strength.SOFT, f"watchdog at {limits.disk_gib:g} GiB of workspace, /tmp and {HOME}")
        pids = "RLIMIT_NPROC" + (f" and pids {held['pids']}" if "pids" in held else "")
        return [
            Containment("filesystem", Strength.HARD, f"container on an empty root with explicit binds, {user}"),
            Containment("host processes", Strength.HARD, "process and IPC namespaces of the container"),
            *common_rows(limits, network, gpus, disk),
            Containment("process count", Strength.HARD, f"{limits.processes}: {pids}"),
            Containment("memory", Strength.HARD, f"{held['memory']} of {limits.memory_gib:g} GiB")
            if "memory" in held
            else Containment("memory", Strength.SOFT, f"watchdog at {limits.memory_gib:g} GiB"),
        ]

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the runtime refuses.
        """
        check_spec(spec)
        self.require()
        uid = self.own_workspace(spec)
        binds = visible_toolkit(spec, other_user=self._as_root)
        devices = gpu_devices(spec.gpus, self._devices)

        def make_launch(networked: SandboxSpec, setup: ContainerSetup, on_end: OnEnd) -> Launch:
            return self._launch(networked, setup, uid, devices, on_end)

        return start_container(spec, binds, uid, APPTAINER_FILES, os.geteuid(), make_launch)

    def _launch(
        self, spec: SandboxSpec, setup: ContainerSetup, uid: int, devices: Iterable[Path], on_end: OnEnd
    ) -> Launch:
        scratch = _make_scratch(setup.folder, uid)
        make_root(setup.folder / "root", [*scratch, *setup.binds])
        count = spec.limits.processes + OWN_PROCESSES + (0 if self._as_root else tasks_of_user(os.getuid()))
        plan = contained_plan(
            spec,
            uid=uid if self._as_root else None,
            rlimits=rlimits(spec.limits, count),
            leash=True,
            calls=call_filter_hex(memory_files="memory" in enforced_by(self._as_root) or bool(spec.gpus)),
        )
        enforcer, prefix = make_enforcer(spec.limits, self._as_root)
        return Launch(
            argv=prefix + self.command(setup, scratch, devices),
            plan=plan,
            spec=spec,
            enforcer=enforcer,
            listener=setup.listener,
            on_end=on_end,
            also_watched=tuple(mount.host for mount in scratch),
        )

    def command(self, setup: ContainerSetup, scratch: Iterable[Mount], devices: Iterable[Path]) -> tuple[str, ...]:
        """The whole command line of one container."""
        argv = self._command_start()
        for bind in [*scratch, *setup.binds]:
            argv += ["--mount", _mount_option(bind)]
        for device in devices:
            argv += ["--bind", f"{device}:/dev/{device.name}"]
        return (*argv, str(setup.folder / "root"), *COMMAND)

    def _command_start(self) -> list[str]:
        capabilities = ["--add-caps", ROOT_CAPABILITIES] if self._as_root else []
        return [self._binary, "exec", *CONTAIN, *capabilities]

    def _probe(self) -> None:
        with tempfile.TemporaryDirectory(prefix="agent2-probe-") as folder:
            root = Path(folder) / "root"
            binds = system_mounts()
            make_root(root, binds)
            argv = self._command_start()
            for bind in binds:
                argv += ["--mount", _mount_option(bind)]
            answer = _run_apptainer([*argv, str(root), "/usr/bin/true"])
        if answer.returncode != 0:
            message = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise SandboxError(
                f"{self._binary} refuses ({message}); ask for user namespaces or its set-uid starter, and for "
                "'user bind control = yes' in its configuration, or use --set sandbox=bubblewrap"
            )


def _make_scratch(folder: Path, uid: int) -> tuple[Mount, ...]:
    """Folders for /tmp and the home folder."""
    mounts = []
    for name, inside in (("tmp", "/tmp"), ("home", HOME)):
        path = folder / name
        path.mkdir()
        if uid != os.geteuid():
            os.chown(path, uid, uid)
        mounts.append(Mount(path, inside, writable=True))
    return tuple(mounts)


def _mount_option(bind: Mount) -> str:
    """A --mount option, which is a line of CSV."""
    fields = ["type=bind", f"source={bind.host}", f"destination={bind.inside}", *([] if bind.writable else ["ro"])]
    return ",".join(csv_field(part) for part in fields)


def _run_apptainer(argv: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=PROBE_S, check=False, cwd="/")
    except OSError as error:
        raise SandboxError(
            f"{argv[0]}: Apptainer is not installed ({error.strerror}); install it (apptainer.org), or use "
            "--set sandbox=bubblewrap"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{argv[0]} did not answer in {PROBE_S:g} s; try it by hand") from error
