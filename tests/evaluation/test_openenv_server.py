"""OpenEnv, both ways, against the real package: its server played as a world, and our worlds played by its client."""

import contextlib
import json
import re
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

from agent2.benchmarks import load_benchmark
from agent2.cli import app
from agent2.environments.openenv import URL_VARIABLE, OpenEnvWorld
from agent2.errors import ConfigError, EnvironmentFailed, Fault
from agent2.evaluation.engine import Attempt, PlaySettings, play, play_by
from agent2.evaluation.scoring import score_played
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Message, RolloutStatus, SamplingSettings, Split
from agent2.scorers.reward import RewardScorer

INSTALLED = "openenv is not installed: make test installs it, without the rest of what it asks for"
core = pytest.importorskip("openenv.core", reason=INSTALLED)
server = pytest.importorskip("openenv.core.env_server", reason=INSTALLED)
pytestmark = pytest.mark.slow

GUESS = Item("guess-1", Split.TRAIN, "Guess the number.", payload={"highest": 20})


class GuessAction(server.Action):
    guess: int


class GuessObservation(server.Observation):
    hint: str


class Guessing(server.Environment):
    """Higher or lower: 1 for the right number, 0 for every other, and the sixth guess is the last."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, highest=9, **kwargs):
        self.secret, self.n_steps = 1 + seed % highest, 0
        return GuessObservation(hint=f"It is a number from 1 to {highest}.")

    def step(self, action, timeout_s=None, **kwargs):
        self.n_steps += 1
        if action.guess == 666:
            raise RuntimeError("the dice are gone")
        if action.guess == self.secret:
            return GuessObservation(hint="That is it.", reward=1.0, done=True)
        hint = "higher" if action.guess < self.secret else "lower"
        return GuessObservation(hint=hint, reward=0.0, done=self.n_steps == 6)

    @property
    def state(self):
        return server.State(step_count=self.n_steps)

    def get_metadata(self):
        return server.types.EnvironmentMetadata(name="guessing", description="higher or lower", version="2.1")


@contextmanager
def running(application):
    """Its address, while it is served."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = uvicorn.Server(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def guessing():
    with running(server.create_fastapi_app(Guessing, GuessAction, GuessObservation, max_concurrent_envs=16)) as url:
        yield url


@contextmanager
def answering(*answers):
    """A server that sends these frames, one for each message; then, or at None, it closes the connection."""

    def handler(session):
        for answer in answers:
            session.recv()
            if answer is None:
                return
            session.send(answer if isinstance(answer, str) else json.dumps(answer))

    with serve(handler, "127.0.0.1", 0) as scripted:
        threading.Thread(target=scripted.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{scripted.socket.getsockname()[1]}"


def observed(text="go on", reward=None, done=False):
    return {"type": "observation", "data": {"observation": {"text": text}, "reward": reward, "done": done}}


def bisect(attempt, world, chat):
    """Halves what is left; a JSON action, with a word before it."""
    low, high = 1, 20
    for action, observation in zip(chat[1::2], chat[2::2], strict=True):
        guess = json.loads(action.content.removeprefix("I try "))["guess"]
        low, high = (guess + 1, high) if "higher" in observation.content else (low, guess - 1)
    return f'I try {{"guess": {(low + high) // 2}}}'


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "openenv.md"
BENCHMARK = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


def benchmark_of(folder, url=None):
    """The page's own file; the server of `AGENT2_OPENENV_URL`, unless it names one."""
    folder.mkdir(exist_ok=True)
    line = "  url: http://127.0.0.1:8000\n"
    assert line in BENCHMARK
    (folder / "benchmark.yaml").write_text(BENCHMARK.replace(line, "" if url is None else f"  url: {url}\n"))
    for name, start in (("train.jsonl", 0), ("test.jsonl", 100)):
        rows = [json.dumps({"id": n, "highest": 20}) + "\n" for n in range(start, start + 30)]
        (folder / name).write_text("".join(rows))
    return load_benchmark(str(folder))


def played(benchmark, player, n=8):
    items = benchmark.items(Split.TRAIN, n, None)
    attempts = [Attempt(item, 0, 7 + place) for place, item in enumerate(items)]
    rollouts = list(play_by(player, attempts, benchmark.environment, benchmark.max_turns, retries=0))
    return list(score_played(rollouts, benchmark.scorer()))


def test_a_benchmark_of_data_names_an_environment_of_openenv_and_its_rewards_are_the_score(
    guessing, tmp_path, monkeypatch
):
    monkeypatch.setenv(URL_VARIABLE, guessing)
    benchmark = benchmark_of(tmp_path / "guess")
    right = played(benchmark, bisect)
    assert [record.score.value for record in right] == [1.0] * 8
    first = right[0].rollout
    assert first.prompt[0].content.endswith("\n\nIt is a number from 1 to 20.")
    assert first.turns[-1].observation == "That is it."
    assert first.state["rewards"] == [0.0] * (len(first.turns) - 1) + [1.0] and first.status is RolloutStatus.COMPLETED
    wrong = played(benchmark, lambda *_: '{"guess": 0}')
    assert {record.score.value for record in wrong} == {0.0} and {len(record.rollout.turns) for record in wrong} == {6}
    assert benchmark.items(Split.TRAIN, 1, None)[0].reference is None


def test_sixteen_sessions_side_by_side_end_as_one_after_the_other(guessing):
    def world():
        return OpenEnvWorld(guessing, observation="hint")

    attempts = [Attempt(GUESS, number, number) for number in range(16)]
    one_by_one = {rollout.attempt: rollout for _, rollout in play_by(bisect, attempts, world, 6)}
    sampler = ScriptedSampler(lambda chat: bisect(None, None, chat), capacity=16)
    together = play(attempts, sampler, world, RewardScorer(1), PlaySettings(SamplingSettings(), 6))
    for scored in together:
        alone = one_by_one[scored.rollout.attempt]
        assert [turn.observation for turn in scored.rollout.turns] == [turn.observation for turn in alone.turns]
        assert scored.score.value == 1.0


def test_an_action_that_the_environment_refuses_is_told_to_the_model_and_a_crash_of_it_is_not_the_models(guessing):
    world = OpenEnvWorld(guessing, observation="hint")
    world.reset(GUESS, 3)
    assert world.act("seven").observation == "That is not an action: write one JSON object."
    step = world.act('{"gess": 7}')
    assert step.observation.startswith("The environment refused this action: guess: Field required; gess: Extra")
    assert world.act('{"guess": 4}').done and world.state()["rewards"] == [1.0]
    broken = OpenEnvWorld(guessing, observation="hint")
    broken.reset(GUESS, 3)
    with pytest.raises(EnvironmentFailed, match=r"EXECUTION_ERROR: the dice are gone"):
        broken.act('{"guess": 666}')
    with pytest.raises(EnvironmentFailed, match="acted without a session"):
        broken.act('{"guess": 1}')


def test_a_server_that_is_absent_another_or_no_such_server_is_a_fault_with_its_address(guessing):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        absent = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(EnvironmentFailed, match=rf"{absent}: no session .*start the server, or change the url"):
            OpenEnvWorld(absent).reset(GUESS, 0)
    newer = OpenEnvWorld(guessing, serves={"name": "guessing", "version": "2.0"})
    with pytest.raises(EnvironmentFailed, match=r"version of the environment is '2\.1', '2\.0' is expected"):
        newer.reset(GUESS, 0)
    with pytest.raises(EnvironmentFailed, match=r"no 'board\.text' \(fields here: hint, metadata\)"):
        OpenEnvWorld(guessing, observation="board.text").reset(GUESS, 0)
    with running(server.create_fastapi_app(Guessing, GuessAction, GuessObservation, max_concurrent_envs=1)) as small:
        first, second = OpenEnvWorld(small, observation="hint"), OpenEnvWorld(small, observation="hint")
        first.reset(GUESS, 0)
        with pytest.raises(EnvironmentFailed, match=r"CAPACITY_REACHED.*play fewer rollouts at once"):
            second.reset(GUESS, 0)


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (["no JSON"], "the answer to reset is not a message of OpenEnv: 'no JSON'"),
        (["[1, 2]"], "is not a message of OpenEnv"),
        ([{"type": "observation", "data": {"observation": {}}}], "is not a message of OpenEnv"),
        ([observed(reward="much")], "not an observation with reward and done"),
        ([observed(reward=float("nan"))], "not an observation with reward and done"),
        ([observed(reward=10**400)], "not an observation with reward and done"),
        ([observed(reward=True)], "not an observation with reward and done"),
        ([observed(done=1)], "not an observation with reward and done"),
        (
            [{"type": "state", "data": {"observation": {}, "reward": 0, "done": False}}],
            "not an observation with reward",
        ),
        ([observed(done=True)], "the episode is over right after reset"),
        ([None], "the server ended the session during reset"),
        ([observed(), None], "the server ended the session during step"),
        ([observed(), "x" * (17 * 2**20)], "the server ended the session during step"),
    ],
)
def test_a_server_that_dies_or_talks_nonsense_is_an_environment_fault_and_never_a_reward(answers, problem):
    with answering(*answers) as url:
        attempt = Attempt(GUESS, 0, 0)
        rollouts = list(
            play_by(lambda *_: "{}", [attempt], lambda: OpenEnvWorld(url, observation="text"), 3, retries=0)
        )
    [(_, rollout)] = rollouts
    assert rollout.status is RolloutStatus.FAILED and rollout.fault is Fault.ENVIRONMENT
    assert problem in rollout.reason and url in rollout.reason


def test_an_answer_that_no_action_asked_for_is_a_fault_and_its_reward_is_nobodys():
    has_arrived = threading.Event()

    def generous(session):
        session.recv()
        session.send(json.dumps(observed()))
        session.recv()
        session.send(json.dumps(observed(reward=0)))
        session.send(json.dumps(observed(reward=1)))
        if session.ping().wait(120):  # the client answers it after what came before
            has_arrived.set()
        session.recv(timeout=120)

    with serve(generous, "127.0.0.1", 0) as scripted:
        threading.Thread(target=scripted.serve_forever, daemon=True).start()
        world = OpenEnvWorld(f"http://127.0.0.1:{scripted.socket.getsockname()[1]}", observation="text")
        world.reset(GUESS, 0)
        world.act("{}")
        assert has_arrived.wait(120), "the second answer"
        with pytest.raises(EnvironmentFailed, match="an answer before it was given an action"):
            world.act("{}")
        assert world.state()["rewards"] == [0.0]


def test_metadata_without_end_is_given_up_and_no_message_holds_a_password():
    with socket.create_server(("127.0.0.1", 0)) as endless:

        def pour():
            connection, _ = endless.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b" " * 65536)

        threading.Thread(target=pour, daemon=True).start()
        place = f"127.0.0.1:{endless.getsockname()[1]}"
        world = OpenEnvWorld(f"http://ada:hunter2@{place}", serves={"name": "guessing"})
        with pytest.raises(EnvironmentFailed, match="1,048,576 bytes") as failed:
            world.reset(GUESS, 0)
    assert place in str(failed.value) and "hunter2" not in str(failed.value)


def test_a_web_page_plays_no_world_of_ours():
    from agent2.evaluation.openenv_server import openenv_app

    with running(openenv_app(load_benchmark("mini_functions"), Split.TRAIN, 3)) as url:
        address = f"ws{url.removeprefix('http')}/ws"
        with pytest.raises(InvalidStatus), connect(address, origin="http://evil.example"):
            pass
        with connect(address) as session:
            session.send(json.dumps({"type": "reset", "data": {}}))
            assert json.loads(session.recv())["type"] == "observation"
        assert httpx.get(f"{url}/metadata", headers={"origin": "http://evil.example"}, timeout=120).status_code == 403


def test_a_silent_server_is_given_up_and_broken_characters_can_be_stored():
    with answering(observed(), observed("half \ud800" + "x" * 300_000, reward=1, done=True)) as url:
        world = OpenEnvWorld(url, observation="text")
        world.reset(GUESS, 0)
        step = world.act("{}")
        assert step.observation.startswith("half \ufffdx") and len(step.observation) < 201_000
        assert (
            step.observation.endswith("[100,006 characters more were left out]")
            and step.done
            and world.state()["rewards"] == [1.0]
        )

    def silent(session):
        session.recv()
        session.recv(timeout=20)

    with serve(silent, "127.0.0.1", 0) as scripted:
        threading.Thread(target=scripted.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{scripted.socket.getsockname()[1]}"
        with pytest.raises(EnvironmentFailed, match=r"no answer to reset within 0\.2 s"):
            OpenEnvWorld(url, timeout_s=0.2).reset(GUESS, 0)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, f"{URL_VARIABLE} is ''; give the address"),
        ({"url": "localhost:8000"}, "url is 'localhost:8000'; give the address"),
        ({"url": "http://h", "timeout_s": 0}, "timeout_s is 0"),
        ({"url": "http://h", "serves": {"nmae": "guessing"}}, "serves names nmae"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, problem, monkeypatch):
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=problem):
        OpenEnvWorld(**settings)


def test_the_address_is_part_of_a_benchmarks_version_only_where_the_file_names_it(guessing, tmp_path, monkeypatch):
    monkeypatch.setenv(URL_VARIABLE, guessing)
    before = benchmark_of(tmp_path / "a").version
    monkeypatch.setenv(URL_VARIABLE, "http://elsewhere:9")
    assert benchmark_of(tmp_path / "b").version == before
    assert benchmark_of(tmp_path / "c", "http://elsewhere:9").version != before


@pytest.fixture(scope="module")
def shop():
    from agent2.evaluation.openenv_server import openenv_app

    benchmark = load_benchmark("shop")
    with running(openenv_app(benchmark, Split.TRAIN, 5, n_sessions=8)) as url:
        yield benchmark, url


def test_the_client_of_openenv_plays_our_world_and_gets_the_score_of_an_evaluation_as_reward(shop):
    benchmark, url = shop
    item = benchmark.items(Split.TRAIN, 5, None)[3]
    expert = benchmark.players().oracle
    with core.GenericEnvClient(base_url=url).sync() as client:
        for says, score in ((expert, 1.0), (lambda item, chat: "nonsense", 0.0)):
            result = client.reset(index=3, seed=5)
            assert item.prompt in result.observation["messages"][-1]["content"]
            chat = [message_of(message) for message in result.observation["messages"]]
            rewards = []
            while not result.done:
                action = says(item, chat)
                result = client.step({"message": action})
                rewards.append(result.reward)
                chat += [message_of({"role": "assistant", "content": action})]
                chat += [message_of(message) for message in result.observation["messages"]]
            assert rewards == [None] * (len(rewards) - 1) + [score] and len(rewards) <= benchmark.max_turns
            assert result.metadata["reason"]
        assert client.state()["item_id"] == item.id


def message_of(message):
    return Message(message["role"], message["content"])


def test_our_world_served_and_played_through_the_bridge_has_the_verdict_that_it_has_here(shop):
    benchmark, url = shop
    items = benchmark.items(Split.TRAIN, 5, None)
    oracle = benchmark.players().oracle
    served = [Item(item.id, item.split, "", payload={"item": item.id}) for item in items]
    by_id = {item.id: item for item in items}

    def player(attempt, world, chat):
        return oracle(by_id[attempt.item.id], chat)

    def world():
        return OpenEnvWorld(url, action="message", observation="text")

    attempts = [Attempt(item, 0, 0) for item in served]
    remote = {rollout.item_id: rollout for _, rollout in play_by(player, attempts, world, benchmark.max_turns)}
    here = play_by(player, [Attempt(item, 0, 0) for item in items], benchmark.environment, benchmark.max_turns)
    for scored in score_played(here, benchmark.scorer()):
        rollout = remote[scored.rollout.item_id]
        assert rollout.state["rewards"][-1] == scored.score.value == 1.0
        assert [turn.action for turn in rollout.turns] == [turn.action for turn in scored.rollout.turns]


def test_what_is_not_served_is_refused_and_a_session_goes_on(shop):
    from agent2.evaluation.openenv_server import openenv_app

    benchmark, url = shop
    with pytest.raises(ConfigError, match="'test_public' is hidden and is not served"):
        openenv_app(benchmark, Split.TEST_PUBLIC, 5)
    with core.GenericEnvClient(base_url=url).sync() as client:
        for arguments, problem in (({"index": 5}, "there are 5 items"), ({"item": "shop-none"}, "is not served")):
            with pytest.raises(RuntimeError, match=problem):
                client.reset(**arguments)
        with pytest.raises(RuntimeError, match="reset begins one"):
            client.step({"message": "search[lamp]"})
        client.reset(seed=1)
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            client.step({"words": "search[lamp]"})
        assert not client.step({"message": "search[lamp]"}).done


class BreakingWorld:
    """The arithmetic world, until it is told to break."""

    def __init__(self, inner, breaks_at, error):
        self.inner, self.breaks_at, self.error = inner, breaks_at, error

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def reset(self, item, seed):
        if self.breaks_at == "reset":
            raise self.error
        return self.inner.reset(item, seed)

    def act(self, action):
        raise self.error


class Breaking:
    """The arithmetic benchmark around such a world."""

    def __init__(self, *settings):
        self.inner, self.settings = load_benchmark("arithmetic"), settings

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def environment(self):
        return BreakingWorld(self.inner.environment(), *self.settings)


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit("boom")])
@pytest.mark.parametrize("breaks_at", ["reset", "act"])
def test_a_world_that_breaks_ends_its_episode_and_the_next_message_is_answered(breaks_at, error):
    from agent2.evaluation.openenv_server import BenchmarkSession, WorldAction

    benchmark = Breaking(breaks_at, error)
    session = BenchmarkSession(benchmark, benchmark.items(Split.DEV, 2, None))
    outcomes = []

    def ask():  # in a thread that may hang
        for _ in range(2):
            for call in (session.reset, session.step, session.step):
                try:
                    call(**({"seed": 1} if call == session.reset else {"action": WorldAction(message="x")}))
                    outcomes.append("fine")
                except RuntimeError as refused:
                    outcomes.append(
                        "broke" if "the episode broke" in str(refused) and "boom" in str(refused) else "none"
                    )

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(120)
    assert outcomes == (["broke", "none", "none"] if breaks_at == "reset" else ["fine", "broke", "none"]) * 2


def test_sessions_that_leave_in_mid_episode_leave_no_thread(shop):
    _, url = shop
    for _ in range(4):
        with core.GenericEnvClient(base_url=url).sync() as client:
            client.reset(seed=1)
    for _ in range(2400):  # a session is closed after its client has left
        playing = [thread for thread in threading.enumerate() if "_play" in thread.name]
        if not playing:
            break
        threading.Event().wait(0.05)
    assert not playing


def test_serve_names_a_wrong_split_and_a_port_that_is_taken():
    runner = CliRunner()
    done = runner.invoke(app, ["benchmarks", "serve", "shop", "--split", "trian"])
    assert isinstance(done.exception, ConfigError) and "train" in str(done.exception)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = runner.invoke(
            app, ["benchmarks", "serve", "shop", "--port", str(taken.getsockname()[1]), "--items", "2"]
        )
    assert isinstance(done.exception, ConfigError) and "choose another with --port" in str(done.exception)
