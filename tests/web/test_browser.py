"""The web app in a real browser: routes to a failure, live updates, keys, hostile text, accessibility."""

import contextlib
import fcntl
import json
import re
import shutil

import pytest

from agent2.cli.run import play_new_trial
from agent2.web.catalog import Catalog
from agent2.web.export import export_site
from agent2.web.site import Site
from browser_builders import find_chromium, open_browser, serving
from trial_builders import write_task
from web_builders import HOSTILE, write_card, write_evaluation, write_exchanges, write_monitor, write_trial

pytestmark = pytest.mark.slow
TIMEOUT_MS = 120_000


@pytest.fixture(scope="module")
def results(tmp_path_factory, common_home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT2_HOME", str(common_home))
        top = tmp_path_factory.mktemp("browser")
        root = top / "results"
        write_evaluation(top / "players", root / "evaluation")
        write_card(root / "cards" / "one", n=12)
        write_card(root / "cards" / "two", n=12, checkpoint="better")
        write_monitor(root / "training")
        write_exchanges(write_trial(root / "trials" / "talking", {"event": "agent_started"}) / "llm")
        trial = play_new_trial(str(write_task(top)), "base-copy", 0, top / "played")
        shutil.copytree(trial, root / "trials" / "finished", symlinks=True)
        yield root


@pytest.fixture(scope="module")
def address(results):
    with serving(results) as server_address:
        yield server_address


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no Chromium was found on PATH: apt-get install chromium")
    with open_browser(chromium) as chromium_browser:
        yield chromium_browser


def patient_context(browser, **options):
    """A window of its own, with time for a machine that is busy."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    return context


@pytest.fixture
def page(browser, address):
    """A tab in which every error of the console, and every request to somebody else, fails the test."""
    context = patient_context(browser, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("dialog", lambda dialog: (problems.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    allowed = (address, "data:")
    tab.on("request", lambda request: None if request.url.startswith(allowed) else problems.append(request.url))
    yield tab
    context.close()
    assert problems == []


def scripted(tab, selector):
    """Wait for a page with that element, and until its script has run: a key pressed before does nothing."""
    tab.locator(f"html.scripted:has({selector})").wait_for()


class Clicks:
    """Clicks that are counted."""

    def __init__(self, page):
        self.page, self.n = page, 0

    def on(self, selector, **more):
        self.n += 1
        self.page.locator(selector, **more).first.click()
        self.page.wait_for_load_state()


def test_a_failing_turn_of_an_evaluation_is_within_four_clicks_of_home(page, address):
    page.goto(address)
    clicks = Clicks(page)
    clicks.on("a[href^='/evaluation/']")
    clicks.on(":is(.item-links, .item-questions) a")
    assert "failed" in page.locator(".verdict-card").first.inner_text()
    clicks.on("#t1 .anchor")
    page.wait_for_url("**#t1")
    assert page.url.endswith("#t1") and clicks.n <= 4
    assert page.locator("#t1").is_visible()
    shared = page.url
    page.goto(address)
    page.goto(shared)
    assert page.evaluate("document.querySelector(':target').id") == "t1", "a turn has a link of its own"


def test_a_failing_turn_of_a_trial_is_within_four_clicks_of_home(page, address):
    page.goto(address)
    clicks = Clicks(page)
    clicks.on("a[href^='/trial/']", has_text="base-copy")
    clicks.on("a[href^='/card/']")
    clicks.n += 1
    page.get_by_label("Show").first.select_option("failed")
    page.wait_for_url("**show=failed**")
    clicks.on(".rollouts tbody a")
    assert clicks.n <= 4 and "failed" in page.locator(".verdict-card").inner_text()


def test_a_failing_turn_is_within_four_clicks_of_the_leaderboard(page, address):
    page.goto(f"{address}leaderboard")
    page.locator(".board a").first.wait_for()
    clicks = Clicks(page)
    clicks.on(".board a")
    clicks.on("a[href^='/card/']")
    clicks.n += 1
    page.get_by_label("Show").first.select_option("failed")
    page.wait_for_url("**show=failed**")
    clicks.on(".rollouts tbody a")
    page.locator(".verdict-card").wait_for()
    assert clicks.n <= 4 and "failed" in page.locator(".verdict-card").inner_text()


def test_two_checkpoints_are_compared_item_by_item(page, address):
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="base on").first.click()
    page.locator(".rollouts tbody a").first.click()
    page.get_by_label("Compare with").select_option(index=1)
    page.wait_for_url("**beside=**")
    titles = []
    scripted(page, "#other-t1")
    for _ in range(4):
        with page.expect_navigation():
            page.keyboard.press("ArrowRight")
        assert page.locator(".pair h2").count() == 2
        assert page.locator("#t1").is_visible() and page.locator("#other-t1").is_visible()
        assert "failed" in page.locator(".verdict-card").first.inner_text()
        titles.append(page.locator("h1").inner_text())
    assert len(set(titles)) == 4, "the arrow key leads to the next failure"
    assert "beside=" in page.url, "the pair is part of the address"


def test_a_search_leads_to_the_turn_and_a_card_to_all_items_beside_another_ones(page, address):
    page.goto(address)
    scripted(page, "main")
    page.keyboard.press("s")
    page.wait_for_url("**/search")
    scripted(page, "form")
    page.get_by_label("every turn").check()
    page.keyboard.press("/")
    page.keyboard.type("I look for 4")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=I+look+for+4**")
    page.locator(".found a").first.click()
    page.wait_for_url("**/rollout/**")
    assert "I look for 4." in page.locator("#t1").inner_text()
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="better on").first.click()
    scripted(page, ".rollouts")
    page.get_by_label("Compare with").select_option(index=1)
    page.wait_for_url("**/compare/**with=**")
    page.get_by_role("link", name="both failed 4").click()
    page.wait_for_url("**kind=both+failed**")
    assert page.locator(".rollouts tbody tr").count() == 4, "the filter is part of the address"
    page.locator(".rollouts tbody a").first.click()
    page.wait_for_url("**/rollout/**beside=**")
    assert page.locator(".pair h2").count() == 2


def test_a_link_to_a_line_of_code_opens_the_file_that_it_is_in(page, address):
    page.goto(address)
    page.locator("a[href^='/trial/']", has_text="base-copy").first.click()
    page.get_by_role("link", name="Code").click()
    page.wait_for_url("**/code")
    line, code = page.locator(".source pre span").nth(4).get_attribute("id"), page.url
    assert not page.locator(f"#{line}").is_visible()
    page.goto(address)
    page.goto(f"{code}#{line}")
    page.locator(f"#{line}:target").wait_for()
    assert page.locator(f"#{line}").is_visible()


def test_a_choice_made_before_the_script_has_loaded_is_not_lost(page, address):
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="base on").first.click()
    page.wait_for_load_state()
    held = []
    page.route("**/app.js", lambda route: held.append(route))
    with page.expect_request("**/app.js"):
        page.reload(wait_until="commit")
    page.get_by_label("Show").first.select_option("failed")
    assert len(held) == 1 and "show=" not in page.url
    held.pop().continue_()
    with page.expect_request("**/app.js"):
        page.wait_for_url("**show=failed**", wait_until="commit")
    page.unroute("**/app.js")
    page.wait_for_load_state()
    page.go_back()
    page.wait_for_load_state()
    assert "show=" not in page.url, "going back does not choose again"


def test_filters_are_kept_in_the_address_and_on_the_way_back(page, address):
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="better on").first.click()
    page.get_by_label("Show").first.select_option("failed")
    page.wait_for_url("**show=failed**")
    page.locator(".rollouts tbody a").first.click()
    page.wait_for_url("**/rollout/**")
    page.keyboard.press("u")
    page.wait_for_url("**/card/**")
    assert "show=failed" in page.url and page.locator(".rollouts tbody tr").count() == 4


def test_a_running_trial_is_followed_to_its_end(browser, results, tmp_path):
    trial = tmp_path / "live" / "trial"
    shutil.copytree(results / "trials" / "finished", trial, symlinks=True)
    log = trial / "events" / "trial.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines, start=1) if json.loads(line)["event"] == "agent_started")
    log.write_text("".join(lines[:first]))
    with contextlib.ExitStack() as stack:
        held = stack.enter_context((trial / "harness.lock").open("w"))
        fcntl.flock(held, fcntl.LOCK_EX)  # before the server looks for the first time
        address = stack.enter_context(serving(trial.parent))
        context = patient_context(browser)
        page = context.new_page()
        loads = []
        page.on("load", lambda tab: loads.append(tab.url))
        page.goto(address)
        page.locator("#running a").first.click()
        page.wait_for_load_state()
        assert "in its agent phase" in page.locator(".lead").inner_text()
        with (trial / "agent.log").open("a") as log_of_agent:
            log_of_agent.write("a line that was just written\n")
        page.locator("[data-text=log]", has_text="a line that was just written").wait_for()
        n_before, n_events = len(loads), page.locator("[data-rows=event] li").count()
        with log.open("a") as grows:
            for line in lines[first:]:
                if json.loads(line)["event"] == "finished":
                    break
                grows.write(line)
                grows.flush()
                n_events += 1
                page.locator("[data-rows=event] li").nth(n_events - 1).wait_for()
            assert len(loads) == n_before, "what is new comes without loading the page again"
            assert page.locator("[data-rows=event] li").count() == n_events, "nothing comes twice"
            grows.write(lines[-1])
        fcntl.flock(held, fcntl.LOCK_UN)
        page.wait_for_selector("nav.tabs")
        page.locator("[data-live]").wait_for(state="detached")
        assert "private items" in page.locator("main").inner_text()
        context.close()


def test_everything_can_be_reached_by_keyboard(page, address):
    def tab_to(selector, max_tabs=80):
        for _ in range(max_tabs):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
        raise AssertionError(f"{selector} is not reached by Tab")

    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    tab_to("a[href^='/evaluation/']")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"
    page.keyboard.press("Enter")
    page.wait_for_url("**/evaluation/**")
    tab_to(":is(.item-links, .item-questions) a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollout/**")
    before = page.url
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible() and "next failure" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda url: url != before)
    page.keyboard.press("u")
    page.wait_for_url("**/card/**")
    page.keyboard.press("/")
    page.keyboard.type("item")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=item**")
    page.keyboard.press("h")
    page.wait_for_url(address)


def test_a_note_on_a_turn_is_written_by_keyboard_and_shown(page, address, results):
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="better on").first.click()
    page.locator(".rollouts tbody a").first.click()
    scripted(page, "#notes form")
    page.get_by_label("About").select_option("t1")
    page.keyboard.press("n")
    page.keyboard.type(f"looks in the wrong place {HOSTILE[:40]}")
    page.get_by_label("By").fill("Ada")
    page.get_by_role("button", name="Save note").click()
    page.locator("#t1 .noted").wait_for()
    assert page.url.endswith("#t1") and "looks in the wrong place <script>" in page.locator("#notes").inner_text()
    (results / "agent2-notes.jsonl").unlink()


def test_a_spot_check_is_rated_in_the_page(page, address, results):
    page.goto(address)
    page.locator("a[href^='/card/']", has_text="better on").first.click()
    scripted(page, ".rollouts")
    page.keyboard.press("r")
    page.locator("fieldset").first.wait_for()
    numbers = page.locator("fieldset").evaluate_all("all => all.map(one => one.id.slice(1))")
    for number in numbers:
        page.locator(f"input[name=v{number}][value=unsure]").focus()
        page.keyboard.press("Space")
    page.get_by_label("Your name").fill("Ada")
    page.keyboard.press("Enter")
    page.wait_for_url("**/agreement")
    assert "judged by Ada" in page.locator(".sub").inner_text()
    shutil.rmtree(results / "cards" / "two" / "spotcheck")


def test_hostile_text_is_shown_and_never_run(page, address):
    def check():
        page.wait_for_load_state()
        assert page.title() != "owned"
        assert page.locator("img").count() == 0
        assert page.locator("script:not([src])").count() == 0

    page.goto(address)
    check()
    page.goto(f"{address}?q=one")
    page.locator("a[href^='/card/']").first.click()
    check()
    page.get_by_label("Show").first.select_option("failed")
    page.wait_for_url("**show=failed**")
    page.locator(".rollouts tbody a").first.click()
    check()
    assert "<script>document.title='owned'</script>" in page.locator("#t1").inner_text()
    page.goto(address)
    page.locator("tr", has_text="talking").locator("a[href^='/trial/']").first.click()
    page.get_by_role("link", name="Transcript").click()
    check()
    assert HOSTILE[:20] in page.locator(".steps").inner_text()


def test_no_script_runs_but_the_apps_own(browser, address):
    context = patient_context(browser)
    tab = context.new_page()
    refused = []
    tab.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
    tab.goto(address)
    tab.evaluate(
        "() => { const one = document.createElement('script'); one.textContent = 'window.owned = 1'; "
        "document.body.append(one); const two = document.createElement('img'); two.src = 'data:,x'; "
        "two.setAttribute('onerror', 'window.owned = 2'); document.body.append(two); }"
    )
    tab.evaluate("fetch('http://198.51.100.1/').catch(() => null)")
    for _ in range(600):  # the browser tells of a refusal when it comes to it
        if len(refused) >= 3:
            break
        tab.wait_for_timeout(200)
    assert tab.evaluate("window.owned === undefined")
    assert len(refused) >= 3 and all("Content Security Policy" in text for text in refused[:3]), refused
    context.close()


def pages_of(page, address):
    """One page of each kind, by name; the leaderboard is made, so that its page does not load again by itself."""
    page.goto(f"{address}leaderboard")
    page.locator(".board").first.wait_for()
    page.goto(address)
    addresses = {"home": address, "leaderboard": f"{address}leaderboard"}
    for link in page.locator("main a").evaluate_all("all => all.map(one => one.href)"):
        kind = re.search(r"/(trial|evaluation|card|sweep|training)/", link)
        if kind:
            addresses.setdefault(kind[1], link)
    ids = page.locator(".select-cell input").evaluate_all("all => all.map(one => one.value)")
    addresses["runs"] = f"{address}runs?run={','.join(ids)}"
    finished = page.locator("a[href^='/trial/']", has_text="base-copy").first.get_attribute("href")
    addresses["trial"] = address.rstrip("/") + finished
    for part in ("timeline", "transcript", "code"):
        addresses[part] = f"{addresses['trial']}/{part}"
    talking = page.locator("tr", has_text="talking").locator("a[href^='/trial/']").first.get_attribute("href")
    addresses["conversation"] = f"{address.rstrip('/')}{talking}/transcript"
    page.goto(addresses["evaluation"])
    addresses["pair"] = page.locator(":is(.item-links, .item-questions) a").first.evaluate("one => one.href")
    addresses["spotcheck"] = addresses["evaluation"].replace("/evaluation/", "/spotcheck/")
    page.goto(addresses["card"])
    addresses["history"] = page.locator("a[href^='/history/']").first.evaluate("one => one.href")
    addresses["rollout"] = page.locator(".rollouts tbody a").first.evaluate("one => one.href")
    other_card = page.locator("select[name=with] option:nth-child(2)").get_attribute("value")
    addresses["compare"] = f"{addresses['card'].replace('/card/', '/compare/')}?with={other_card}"
    addresses["search"] = f"{address}search?q=item&in=turns"
    addresses["found"] = f"{address}search?q=item-0"
    addresses["board with all columns"] = f"{address}leaderboard?columns=all&pin=seeds"
    return addresses


def test_no_page_has_a_serious_accessibility_problem(browser, address):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with_problems = []
    for scheme, width in (("light", 1280), ("dark", 390)):
        context = patient_context(browser, color_scheme=scheme, viewport={"width": width, "height": 900})
        tab = context.new_page()
        for name, link in pages_of(tab, address).items():
            tab.goto(link)
            for violation in axe.Axe().run(tab).response["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    where = [node["target"] for node in violation["nodes"][:3]]
                    with_problems.append(f"{scheme} {name}: {violation['id']}: {violation['help']} {where}")
        context.close()
    assert with_problems == []


def test_two_runs_are_selected_by_keyboard_and_shown_side_by_side(page, address):
    page.goto(f"{address}?kind=card")
    scripted(page, ".select-cell")
    for place in (0, 1):
        page.locator(".select-cell input").nth(place).focus()
        page.keyboard.press("Space")
    page.keyboard.press("c")
    page.wait_for_url("**/runs?run=*")
    assert page.locator("h1").inner_text() == "2 runs side by side"
    page.get_by_role("link", name="item by item").click()
    page.wait_for_url("**/compare/*")
    page.go_back()
    page.get_by_role("link", name="Choose other runs").click()
    page.locator(".select-cell input:checked").nth(1).wait_for()
    assert page.locator(".select-cell input:checked").count() == 2


def test_the_table_of_results_is_sorted_filtered_and_compared_by_keyboard_alone(page, address):
    def tab_to(selector, n=1, max_tabs=120):
        """Press Tab until the n-th element that matches has the focus, which has to be visible each time."""
        for _ in range(max_tabs):
            page.keyboard.press("Tab")
            focus = page.evaluate(
                "s => { const one = document.activeElement, style = getComputedStyle(one); "
                "const seen = style.outlineStyle !== 'none' || style.boxShadow !== 'none'; "
                "return [one.matches(s), seen, one.outerHTML]; }",
                selector,
            )
            assert focus[1], f"the focus cannot be seen on {focus[2][:200]}"
            n -= focus[0]
            if n == 0:
                return
        raise AssertionError(f"{selector} is not reached by Tab")

    page.goto(address)
    scripted(page, ".select-cell")
    tab_to("th a", n=2)
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=result**")
    scripted(page, ".select-cell")
    assert page.locator("th[aria-sort]").inner_text().startswith("result")
    page.keyboard.press("/")
    page.keyboard.type("base")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=base**")
    assert "sort=result" in page.url, "the order stays"
    page.goto(f"{address}?kind=card")
    scripted(page, ".select-cell")
    tab_to(".select-cell input")
    page.keyboard.press("Space")
    tab_to(".select-cell input")
    page.keyboard.press("Space")
    assert page.locator(".select-cell input:checked").count() == 2
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?run=*")
    tab_to("a[href^='/compare/']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/*")
    tab_to(".rollouts tbody a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollout/**beside=**")
    order = page.locator("a[href], button, input:not([type=hidden]), select, textarea, summary").evaluate_all(
        "all => all.filter(one => one.tabIndex > 0).length"
    )
    assert order == 0, "Tab follows the order of the page"


def test_no_page_is_wider_than_a_phone(browser, address):
    context = patient_context(browser, viewport={"width": 390, "height": 800})
    tab = context.new_page()
    wide = {}
    for name, link in pages_of(tab, address).items():
        tab.goto(link)
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide[name] = width
        narrow = tab.locator("td > div").evaluate_all(
            "all => all.filter(one => one.innerText.length > 20 && one.offsetWidth < 60).map(one => one.innerText)"
        )
        assert narrow == [], f"{name}: text in a column of a few letters"
    context.close()
    assert wide == {}


def test_pages_work_without_scripts(browser, address):
    context = patient_context(browser, java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    tab.locator("a[href^='/card/']", has_text="base on").first.click()
    tab.get_by_label("Show").first.select_option("failed")
    tab.get_by_role("button", name="Filter").click()
    tab.wait_for_url("**show=failed**")
    tab.locator(".rollouts tbody a").first.click()
    tab.get_by_label("Compare with").select_option(index=1)
    tab.get_by_role("button", name="Compare").click()
    assert tab.locator("#other-t1").is_visible()
    context.close()


def test_an_exported_site_works_from_files(browser, results, tmp_path):
    out = tmp_path / "site"
    export_site(Site(Catalog(results)), out)
    context = patient_context(browser)
    tab = context.new_page()
    problems = []
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else problems.append(request.url)
    )
    tab.goto((out / "index.html").as_uri())
    tab.locator("a[href*='evaluation/']").first.click()
    tab.locator(":is(.item-links, .item-questions) a").first.click()
    scripted(tab, "#other-t1")
    styled = tab.evaluate("getComputedStyle(document.querySelector('.step')).borderLeftWidth")
    assert styled == "4px", "style sheets are read from files"
    before = tab.url
    with tab.expect_navigation():
        tab.keyboard.press("ArrowRight")
    assert tab.url != before, "so is the script"
    context.close()
    assert problems == []
