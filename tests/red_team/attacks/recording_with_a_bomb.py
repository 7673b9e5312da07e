"""Pack zeros into a body of a recording: a few bytes that unpack to more than a machine holds."""

import zstandard

from agent2.llm.gateway.recording import RecordingError, read_body
from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a reader of recordings that runs out of memory"
DEFENCE = "a body unpacks to no more than any gateway writes"

N_BYTES = 600 * 2**20


def _bomb(scene: Scene):
    path = scene.root / "000001.response.zst"
    if not path.exists():
        packer = zstandard.ZstdCompressor(level=1).compressobj()
        zeros = bytes(2**20)
        with path.open("wb") as file:
            for _ in range(N_BYTES // 2**20):
                file.write(packer.compress(zeros))
            file.write(packer.flush())
    return path


def attempt(scene: Scene) -> Outcome:
    path = _bomb(scene)
    try:
        size = len(read_body(path))
    except RecordingError as error:
        return Outcome(False, f"refused: {str(error)[-90:]}")
    return Outcome(size > 256 * 2**20, f"{path.stat().st_size} bytes became {size}")


def control(scene: Scene) -> Outcome:
    program = (
        "import sys, zstandard; data = open(sys.argv[1], 'rb').read();"
        "print(len(zstandard.ZstdDecompressor().stream_reader(data).read()))"
    )
    outcome = in_time(program, _bomb(scene))
    return Outcome(outcome == str(N_BYTES), f"unpacked at once: {outcome} bytes")
