import shutil

import pytest

from agent2.benchmarks.alfworld import OfficialData, data_root, is_dev, task_folder
from agent2.errors import ConfigError
from household_builders import draw, write_official, write_trial

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_official(tmp_path_factory.mktemp("alfworld"))


def test_all_playable_games_are_read_and_what_the_published_loader_leaves_out_is_left_out(folder):
    games = OfficialData(folder).first("valid_unseen", 6)
    assert len({game.trial for game in games}) == 6
    assert not any("movable" in game.trial or game.trial.endswith(("T2", "T3")) for game in games)
    with pytest.raises(ConfigError, match="7 were asked for"):
        OfficialData(folder).first("valid_unseen", 7)


def test_the_order_is_the_same_again_and_does_not_go_by_name(folder):
    games = [game.trial for game in OfficialData(folder).first("train", 20)]
    assert games == [game.trial for game in OfficialData(folder).first("train", 20)]
    assert games != sorted(games)


def test_a_walkthrough_does_not_leave_the_file(folder):
    (official,) = OfficialData(folder).first("valid_seen", 1)
    assert "walkthrough" not in str(official.game.as_payload())


def test_the_parts_of_an_older_domain_stay_with_their_game(tmp_path):
    game = draw(5)
    write_trial(tmp_path, "train", game, "trial_T1", pddl_domain=f"; older\n{game.as_file()['pddl_domain']}")
    (official,) = OfficialData(tmp_path).first("train", 1)
    assert official.game.domain.startswith("; older")
    assert official.game.grammar is None


def test_train_and_dev_share_no_task_folder():
    places = [f"train/pick-{n}/trial_{m}" for n in range(400) for m in range(2)]
    dev = {task_folder(place) for place in places if is_dev(place)}
    assert dev
    assert not dev & {task_folder(place) for place in places if not is_dev(place)}


def test_where_train_is_not_the_smaller_choice_gives_train_and_dev(folder, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    full = OfficialData(copy).first("train", 20)
    shutil.copytree(copy / "json_2.1.1" / "train", copy / "json_2.1.1" / "valid_train")
    assert OfficialData(copy).first("train", 20) == full
    (copy / "json_2.1.1" / "train").rename(copy / "gone")
    small = OfficialData(copy).first("train", 20)
    assert {game.trial.partition("/")[0] for game in small} == {"valid_train"}
    places = [f"valid_train/pick-{n}/trial_1" for n in range(700)]
    assert 70 < sum(map(is_dev, places)) < 130, "a seventh, so that 200 games have enough dev games"


def test_missing_data_name_the_command_and_the_variable(tmp_path):
    with pytest.raises(ConfigError, match=r"no official games in .*valid_unseen.*ALFWORLD_DATA=.* alfworld-download"):
        OfficialData(tmp_path / "nowhere").first("valid_unseen", 1)


def test_half_a_download_says_how_much_is_there(tmp_path):
    write_official(tmp_path, n_unseen=3)
    for file in sorted(tmp_path.glob("json_2.1.1/valid_unseen/*/*/game.tw-pddl"))[:4]:
        file.unlink()
    with pytest.raises(ConfigError, match=r"playable games \(\d of \d trial folders have no game.tw-pddl\).*has 134"):
        OfficialData(tmp_path).first("valid_unseen", 134)


def test_of_no_games_none_fewer_are_proposed_and_the_split_is_named(tmp_path):
    (tmp_path / "a b" / "json_2.1.1" / "valid_seen").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        OfficialData(tmp_path / "a b").first("valid_seen", 5, split="test_public")
    message = str(caught.value)
    assert "valid_seen holds no playable games, 5 were asked for as test_public" in message and "--set" not in message
    assert f"ALFWORLD_DATA='{tmp_path}/a b' alfworld-download" in message
    assert "-e '.[household]' in the checkout" in message
    write_trial(tmp_path, "valid_seen", draw(5), "trial_T1")
    with pytest.raises(
        ConfigError,
        match=r"holds 1 playable games, 5 .* as test_public.*--set task\.n_items\.test_public=1 with agent2 run",
    ):
        OfficialData(tmp_path).first("valid_seen", 5, split="test_public")


def test_a_file_that_breaks_off_is_named(tmp_path):
    where = write_trial(tmp_path, "train", draw(5), "trial_T1")
    text = (where / "game.tw-pddl").read_text()
    (where / "game.tw-pddl").write_text(text[: len(text) // 2])
    with pytest.raises(
        ConfigError, match=r"game\.tw-pddl: is truncated or not JSON .*ALFWORLD_DATA=.*alfworld-download -f"
    ):
        OfficialData(tmp_path).first("train", 1)
    (where / "game.tw-pddl").write_text("[]")
    with pytest.raises(ConfigError, match="an object is needed"):
        OfficialData(tmp_path).first("train", 1)


def test_a_game_file_of_another_engine_is_named(tmp_path):
    where = write_trial(tmp_path, "train", draw(5), "trial_T1", grammar=None)
    with pytest.raises(ConfigError, match=rf"{where.name}.*lacks grammar.*alfworld-download -f"):
        OfficialData(tmp_path).first("train", 1)


def test_the_folder_is_the_one_given_then_the_variable_then_the_downloaders(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "by-variable"))
    assert data_root(tmp_path) == tmp_path
    assert data_root(None) == tmp_path / "by-variable"
    monkeypatch.delenv("ALFWORLD_DATA")
    assert data_root(None).parts[-2:] == (".cache", "alfworld")
