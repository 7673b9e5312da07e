"""What container engines need on the host for one program: an empty root, a few files, and a socket to talk over.

Engines show the same world as bubblewrap does: an empty root with the host's /usr, the toolkit and the mounts of the
spec, so that no image with libraries has to be fetched or kept up to date, and no image decides what a trial
measures. They do not pass on descriptors, so forward.py connects to a socket here; when the harness is gone, the
connection closes and the container ends itself.
"""

import io
import logging
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent2.sandbox import host
from agent2.sandbox.limits import Launch
from agent2.sandbox.network import with_network
from agent2.sandbox.process import FORWARDER, SandboxProcess
from agent2.sandbox.spec import HOME, PRIVATE, WORKSPACE, Mount, SandboxSpec

logger = logging.getLogger(__name__)

LINK = f"{PRIVATE}/link"
EMPTY_FOLDERS = ("dev", "etc", "home", "home/agent", "proc", "run", "run/agent2", "sys", "tmp", "usr", "workspace")
COMMAND = (str(host.interpreter()), "-I", "-S", f"{PRIVATE}/forward.py", LINK)
"""What runs first in a container."""

OnEnd = tuple[Callable[[], None], ...]
"""What is called when the program has ended."""


@dataclass(frozen=True, slots=True)
class Room:
    """The host's side of one container."""

    folder: Path
    listener: socket.socket
    binds: tuple[Mount, ...]
    """Everything that the container shows of the host, outer folders first."""

    def close(self) -> None:
        """Remove it."""
        self.listener.close()
        shutil.rmtree(self.folder, onerror=_tell)


def start_in_room(
    spec: SandboxSpec,
    toolkit_binds: Iterable[Path],
    uid: int,
    made: Iterable[str],
    first_uid: int,
    launch_in: Callable[[SandboxSpec, Room, OnEnd], Launch],
) -> SandboxProcess:
    """Start a container, with the network that the spec asks for, in a room of its own; both end with it.

    launch_in: from the spec with the network's ports and variables, the room, and what to call at the end. The other
    arguments are those of `open_room`. Raises SandboxError, and then leaves nothing behind.
    """
    spec, way = with_network(spec)
    opened: list[Callable[[], None]] = [] if way is None else [way.close]
    try:
        room = open_room(spec, toolkit_binds, uid, made, first_uid=first_uid)
        opened.insert(0, room.close)
        launch = launch_in(spec, room, tuple(opened))
    except BaseException:
        for close in opened:
            close()
        raise
    return SandboxProcess(launch)  # which closes them itself, also where it does not start


def _tell(_: object, path: str, error: tuple[object, BaseException, object]) -> None:
    """A program may have locked its own temporary files away from us."""
    logger.warning("%s stays behind: %s", path, error[1])


def open_room(
    spec: SandboxSpec, toolkit_binds: Iterable[Path], uid: int, made: Iterable[str], *, first_uid: int
) -> Room:
    """Make the folder, the files named in `made` (of `toolkit.made_files`) and the socket.

    uid: the program's user, as the host sees it; the ports are handed to it. first_uid: the user that the container
    starts with, which the socket is handed to.
    """
    folder = Path(tempfile.mkdtemp(prefix="agent2-room-"))
    folder.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(folder / "link"))
        listener.listen(1)
        for path, owner in [(folder / "link", first_uid), *((port, uid) for port in spec.ports.values())]:
            if path.stat().st_uid != owner:
                os.chown(path, owner, owner)
        files = host.made_files(uid)
        binds = system_mounts()
        for name in made:
            own = folder / name.strip("/").replace("/", "-")
            own.write_text(files[name])
            own.chmod(0o644)
            binds.append(Mount(own, name))
        binds += [Mount(FORWARDER.resolve(), f"{PRIVATE}/forward.py"), Mount(folder / "link", LINK)]
        binds += [Mount(path.resolve(), f"{PRIVATE}/ports/{port}") for port, path in spec.ports.items()]
        binds += [Mount(path.resolve(), str(path)) for path in toolkit_binds]
        binds += [Mount(mount.host.resolve(), mount.inside, mount.writable) for mount in spec.mounts]
        binds.append(Mount(spec.workspace.resolve(), WORKSPACE, writable=True))
    except BaseException:
        listener.close()
        shutil.rmtree(folder)
        raise
    return Room(folder, listener, tuple(binds))


def system_mounts() -> list[Mount]:
    """The host's /usr and the few files of /etc; engines bring a /sys of their own."""
    system = (path for kind, path in host.system_binds() if kind == "bind")
    return [Mount(Path(path).resolve(), path) for path in system if not path.startswith("/sys/")]


def root_links() -> dict[str, str]:
    """Links of the empty root, such as bin -> usr/bin: name -> target."""
    return {path.strip("/"): os.readlink(path) for kind, path in host.system_binds() if kind == "link"}


def make_root(folder: Path, binds: Iterable[Mount]) -> None:
    """Make the empty root in a folder, with a place for each bind; readable by everybody."""
    _make_folder(folder)
    for name in EMPTY_FOLDERS:
        _make_folder(folder / name)
    for name, target in root_links().items():
        (folder / name).symlink_to(target)
    for bind in binds:
        place = folder / bind.inside.strip("/")
        if place.exists() or bind.inside.startswith(("/usr/", "/sys/", "/tmp/", f"{HOME}/")):
            continue  # it is inside what is mounted there
        for parent in reversed(place.relative_to(folder).parents):
            if not (folder / parent).exists():
                _make_folder(folder / parent)
        if bind.host.is_dir():
            _make_folder(place)
        else:
            place.touch()


def _make_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)  # whatever the umask says


def root_archive() -> bytes:
    """The empty root as a tar file, the same bytes each time on the same host."""
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
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n') else text
