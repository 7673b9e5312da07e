import pytest
from msgspec import structs

from agent2.scorers.grounding.cited_urls import MAX_CITED, RecordedPage, UrlFound, cited_urls, plain_url, urls_in
from agent2.scorers.grounding.episodes import read_episode
from agent2.scorers.process.statistics import process_of
from process_builders import call, make_worked

TOWER = "https://example.org/towers/eiffel"
PAGE = "The Eiffel Tower in Paris is 330 metres tall. It was finished in 1889."
CATS = "Cats sleep most of the day. A kitten drinks milk."
RESULTS = f"1. Eiffel Tower {TOWER} 2. Cats https://example.org/cats"


def cited(answer, *calls, pages=None, task="How tall is the tower?"):
    rollout = make_worked("a", list(calls), 1.0, answer, task).rollout
    return cited_urls(rollout, read_episode(rollout), pages)


def searched():
    return call("search", result=RESULTS, query="tower")


def opened(url=TOWER, result=PAGE, error=None):
    return call("open_url", result=result, error=error, url=url)


@pytest.mark.parametrize(
    "written",
    [
        "http://www.example.org/towers/eiffel/",
        "https://EXAMPLE.org/towers/eiffel#height",
        "https://example.org:443/towers/eiffel?utm_source=x",
    ],
)
def test_an_address_that_was_opened_is_sound_however_it_is_written(written):
    (found,) = cited(f"The Eiffel Tower is 330 metres tall ({written}).", searched(), opened())
    assert (found.state, found.is_relevant, found.is_sound) == (UrlFound.OPENED, True, True)


def test_what_was_only_shown_was_not_read_and_what_nobody_showed_is_made_up():
    shown, unseen = cited(f"The tower is tall {TOWER} and old https://example.org/towers/eiffel-1889.", searched())
    assert (shown.state, unseen.state) == (UrlFound.SHOWN, UrlFound.UNSEEN)
    assert not shown.is_sound and not unseen.is_sound


def test_an_address_is_not_seen_because_a_longer_one_is():
    (found,) = cited("It is tall: https://example.org/towers/eiffel/history", searched(), opened())
    assert found.state is UrlFound.UNSEEN


def test_a_page_that_could_not_be_opened_is_dead():
    (failed,) = cited(f"It is tall {TOWER}", opened(error="tool"))
    assert failed.state is UrlFound.DEAD
    (empty,) = cited(f"It is tall {TOWER}", opened(result=""))
    assert empty.state is UrlFound.DEAD


def test_a_page_about_something_else_does_not_carry_a_sentence():
    (found,) = cited(f"The Eiffel Tower in Paris is 330 metres tall [{TOWER}].", opened(result=CATS))
    assert found.state is UrlFound.OPENED and found.is_relevant is False and not found.is_sound


def test_an_address_in_a_list_of_sources_is_about_any_sentence_of_the_answer():
    answer = f"The Eiffel Tower is 330 metres tall. I like it.\n\nSources:\n- {TOWER}\n- https://example.org/cats"
    tower, cats = cited(answer, searched(), opened(), opened("https://example.org/cats", CATS))
    assert (tower.is_relevant, cats.is_relevant) == (True, False)


def test_a_recording_says_whether_a_page_exists():
    pages = {
        plain_url(TOWER): RecordedPage(200, PAGE),
        plain_url("https://example.org/gone"): RecordedPage(404, "Eiffel"),
    }
    recorded, gone = cited(
        f"The Eiffel Tower is 330 metres tall {TOWER}. It was finished in 1889 https://example.org/gone.", pages=pages
    )
    assert (recorded.state, recorded.is_sound) == (UrlFound.RECORDED, True)
    assert (gone.state, gone.is_sound) == (UrlFound.DEAD, False)


def test_an_address_of_the_task_is_no_citation_unless_it_was_opened():
    task = f"Read {TOWER} and tell me how tall it is."
    assert cited(f"I could not read {TOWER}.", task=task) == []
    assert [found.state for found in cited(f"330 metres, says {TOWER}.", opened(), task=task)] == [UrlFound.OPENED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://en.wikipedia.org/wiki/Mercury_(planet), or", ["https://en.wikipedia.org/wiki/Mercury_(planet)"]),
        ("(https://a.org/b).", ["https://a.org/b"]),
        ("[title](https://a.org/b) and **https://a.org/c**", ["https://a.org/b", "https://a.org/c"]),
        ('{"urls": ["https://a.org/b"]}', ["https://a.org/b"]),
        ("mail a@b.org or ftp://c.org", []),
    ],
)
def test_addresses_are_read_without_what_is_around_them(text, expected):
    assert urls_in(text) == expected


@pytest.mark.parametrize(
    "odd", ["http://[", "https://a:port/", "http://", "https://%%%", "http://a.org/" + "x(" * 5000]
)
def test_an_odd_address_stops_nothing(odd):
    cited(f"It is so: {odd} .", call("open", result=odd, url=odd))
    plain_url(odd)


def test_a_suite_can_measure_made_up_addresses():
    statistics = process_of(
        make_worked("a", [searched(), opened()], 1.0, f"It is tall {TOWER} https://example.org/made/up").rollout
    )
    assert (statistics.cited_urls, statistics.unseen_citation_ratio) == (2, 0.5)
    none = process_of(structs.replace(make_worked("a", [searched()], 1.0, "330 metres").rollout))
    assert none.unseen_citation_ratio is None and none.cited_urls == 0


def test_a_call_is_no_citation_though_the_episode_ended_with_it():
    rollout = make_worked("a", [searched(), opened("https://example.org/unread")], 0.0, None).rollout
    assert cited_urls(rollout, read_episode(rollout)) == []


@pytest.mark.parametrize(
    "answer",
    [
        "http://a.org/" + ")" * 300_000,
        "http://a.org/x. " * 30_000,
        " ".join(f"http://a{n}.org/{n}" for n in range(20_000)),
        "http://a.org/?" + "&x=1" * 200_000,
    ],
)
def test_a_hostile_answer_costs_little(answer):
    assert len(cited(answer, opened(result="word " * 100_000))) <= MAX_CITED
