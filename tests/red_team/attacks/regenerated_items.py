"""Make the hidden items again with the generator, which is in the sandbox as an installed library."""

from red_team.frame import Outcome
from red_team.scene import ProgramRun, Scene

AIM = "hidden items"
DEFENCE = "which items are asked depends on a secret of 32 random bytes"

PROGRAM = """
import hashlib, json, os
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.records import Split
targets = json.loads(os.environ["TARGETS"])
guesses = [b"", b"secret", bytes(32), b"agent2", b"s" * 32, targets["home"].encode(), os.uname().nodename.encode()]
guesses += [hashlib.sha256(word).digest() for word in guesses]
guesses += [bytes.fromhex(targets["known_secret"])] if "known_secret" in targets else []
benchmark = load_benchmark("arithmetic")
for guess in guesses:
    for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE):
        try:
            for item in benchmark.items(split, 20, guess):
                print(item.prompt)
        except ConfigError as error:
            print(error)
"""


def attempt(scene: Scene) -> Outcome:
    return _judge(scene, scene.run(PROGRAM))


def control(scene: Scene) -> Outcome:
    """The secret is no secret."""
    return _judge(scene, scene.run(PROGRAM, more={"known_secret": scene.secret.hex()}))


def _judge(scene: Scene, ran: ProgramRun) -> Outcome:
    printed = set(ran.log.splitlines())
    hidden = {item.prompt for item in scene.hidden}
    n_hit = len(hidden & printed)
    return Outcome(n_hit > len(hidden) / 2, f"{n_hit} of {len(hidden)} hidden items among {len(printed)} guessed ones")
