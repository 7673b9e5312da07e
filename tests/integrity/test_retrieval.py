import pytest

from agent2.integrity.decontaminate import SUSPECT
from agent2.integrity.retrieval import Retrieval
from integrity_builders import make_units

ITEM = "A farmer keeps seven brown hens and three geese behind the old mill near the river bend"
OTHER = "The treasurer of a village choir counted forty silver coins after the spring concert"
NOISE = [f"Row {n} is about engine number {n * 7} and the weather in town {n}" for n in range(50)]


def nearest(rows, items=(ITEM, OTHER)):
    retrieval = Retrieval(list(items))
    for unit in make_units(rows):
        retrieval.add(unit)
    return retrieval.nearest()


def test_the_item_itself_scores_one_and_names_its_row():
    near = nearest([*NOISE, ITEM])
    assert near[0].score == pytest.approx(1.0) and near[0].where == "code/train.jsonl:51"
    assert near[1].score < 0.3


def test_a_reworded_item_scores_between_noise_and_itself():
    reworded = "Some farmer keeps seven brown hens and four ducks behind the old barn near a river bend"
    half = "A farmer keeps seven brown hens and three geese"
    scores = [nearest([*NOISE, row])[0].score for row in (ITEM, reworded, half, NOISE[0])]
    assert scores[0] > scores[1] > scores[3] and scores[0] > scores[2] > scores[3]


def test_an_item_inside_a_long_row_is_found_by_its_window():
    long = " ".join([*NOISE[:10], ITEM, *NOISE[10:20]])
    assert nearest([*NOISE, long])[0].score > 0.5


def test_without_rows_or_shared_words_nothing_resembles():
    assert nearest([])[0].score == 0.0 == nearest(["zzz yyy xxx"])[0].score
    assert Retrieval([]).nearest() == []


@pytest.mark.parametrize(
    "paraphrase",
    [
        "Behind the old mill, close to the bend of the river, 3 geese and 7 hens of brown colour are kept by a farmer",
        "Near a river bend, farmers keep 3 geese and 7 brown hens behind an old mill",
    ],
)
def test_a_plain_paraphrase_resembles_its_item_more_than_any_other_row(paraphrase):
    other = "A farmer keeps nine brown goats behind the new barn; how much feed do they eat near the end of a week?"
    near, unrelated = nearest([*NOISE, paraphrase, other])
    assert near.score >= SUSPECT and near.where == "code/train.jsonl:51"
    assert nearest([*NOISE, other])[0].score < SUSPECT and unrelated.score < 0.3
