"""Open a trial's socket from a sandbox that was not given it, by its known path on the host."""

from agent2.sandbox.spec import Mount
from red_team.frame import Outcome
from red_team.moves import judge_words
from red_team.scene import Scene

AIM = "submissions in another's name"
DEFENCE = "a socket is bound into its own sandbox only"

PROGRAM = """
import glob, json, os, socket
targets = json.loads(os.environ["TARGETS"])
for path in [targets["socket"], "/victim/" + os.path.basename(targets["socket"])]:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(path)
            client.sendall(b"GET /submissions HTTP/1.0\\r\\n\\r\\n")
            print("done:", client.recv(15).decode())
            break
    except OSError as error:
        print("no way:", error)
"""


def attempt(scene: Scene) -> Outcome:
    return judge_words(scene, scene.run(PROGRAM, ports={}))


def control(scene: Scene) -> Outcome:
    """The folder of the socket is shown and everybody may connect."""
    path = scene.paths.grader_socket
    mode = path.stat().st_mode
    path.chmod(0o666)
    try:
        mounts = (*scene.spec().mounts, Mount(path.parent, "/victim"))
        return judge_words(scene, scene.run(PROGRAM, ports={}, mounts=mounts))
    finally:
        path.chmod(mode & 0o777)
