"""Requests for web pages that are drawn from a seed, each with checks of its function and a page that passes them.

Six kinds: a login page for e-mail and phone, a sign-up form, a counter, a list of tasks, tabs, a table that sorts. What
is drawn are names, texts, numbers and rules; ids begin with a word of the request, so that a page for another request
is of no use. The checks ask at the edges of each rule: the shortest password that is accepted and the longest that is
not, numbers that sort otherwise as text, the last step before a bound.

Promises: what a check expects is said in the request. Does NOT ask for anything that needs a server.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Source, pick
from agent2.records import JsonValue, canonical_json

Check = dict[str, JsonValue]
"""`name` and `steps`, as `scorers.page_checks` plays them."""
BRAND_BEGINS = ("Amber", "Birch", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Harbor", "Iris", "Juniper", "Kelp")
BRAND_ENDS = ("Books", "Cycles", "Energy", "Foods", "Gardens", "Labs", "Market", "Music", "Rail", "Studio", "Travel")
ACCENTS: Mapping[str, str] = MappingProxyType(
    {
        "blue": "#1d4ed8",
        "green": "#166534",
        "red": "#b91c1c",
        "purple": "#6b21a8",
        "brown": "#7c2d12",
        "teal": "#115e59",
        "black": "#111827",
    }
)
"""Colours on which white text can be read, and which can be read on white."""
BACKGROUNDS: Mapping[str, str] = MappingProxyType(
    {"light grey": "#e5e7eb", "light blue": "#dbeafe", "light yellow": "#fef3c7", "light green": "#dcfce7"}
)
NAMES = ("Ada", "Bo", "Chen", "Dana", "Emil", "Fatima", "Goran", "Hana", "Ivo", "Jun")
THINGS = ("apples", "bolts", "candles", "drums", "easels", "flutes", "gloves", "hats", "inks", "jars", "kites", "lamps")
CHORES = (
    "buy milk",
    "call Ana",
    "fix the bike",
    "pay rent",
    "read chapter 2",
    "sort photos",
    "water plants",
    "write Jo",
)
TOPICS = ("Delivery", "Opening hours", "Payment", "Returns", "Team", "Terms", "Warranty", "Workshops")
SENTENCES = (
    "Ask at the desk on the first floor.",
    "It takes three days at most.",
    "Nothing changes before spring.",
    "Please bring the receipt.",
    "This is free for members.",
    "We answer on weekdays.",
)
FORM = """Reply with index.html in a block that begins with ```html. It may load style.css and script.js, which you give
in blocks that begin with ```css and ```js. The page is opened without a network. It is looked at 390, 768 and 1280
pixels wide, has to be usable with a screen reader, and loads nothing from elsewhere."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a page looks."""

    accent: str
    background: str
    column: int
    """Most pixels of width of its column."""

    @property
    def text(self) -> str:
        """As a request says it."""
        return (
            f"Everything stands in one white column of at most {self.column} pixels in the middle of the page, on "
            f"{self.background} ({BACKGROUNDS[self.background]}). Heading and buttons are {self.accent} "
            f"({ACCENTS[self.accent]}), the text of buttons is white."
        )

    @property
    def style(self) -> str:
        """The style sheet of the reference page."""
        return f"""body {{ margin: 0; font: 1rem/1.5 sans-serif; color: #1a1a1a;
  background: {BACKGROUNDS[self.background]}; }}
main {{ box-sizing: border-box; max-width: {self.column}px; margin: 2rem auto; padding: 1.5rem; background: #fff; }}
h1 {{ margin-top: 0; font-size: 1.5rem; color: {ACCENTS[self.accent]}; }}
label {{ display: block; margin-top: 1rem; }}
input {{ box-sizing: border-box; width: 100%; padding: 0.5rem; font: inherit; }}
input[type="checkbox"] {{ width: 1.5rem; height: 1.5rem; vertical-align: middle; }}
button {{ margin: 1rem 0.5rem 0 0; padding: 0.5rem 1rem; border: 0; font: inherit; color: #fff;
  background: {ACCENTS[self.accent]}; }}
table {{ width: 100%; border-collapse: collapse; }}
th, td {{ padding: 0.25rem 0.5rem; text-align: left; }}
li {{ margin-top: 0.5rem; }}
[hidden] {{ display: none; }}
"""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for one page, with its checks and a page that passes them."""

    kind: str
    title: str
    rules: Sequence[str]
    """What the page does, a sentence or two each."""
    look: Look
    parts: Sequence[str]
    """Selectors of what is seen on the page that was just loaded."""
    checks: Sequence[Check]
    body: str
    """Of the reference page, below its heading."""
    script: str

    @property
    def text(self) -> str:
        """The user message."""
        rules = "\n".join(f"- {rule}" for rule in self.rules)
        return f'Build a web page with the title and the heading "{self.title}".\n{rules}\n- {self.look.text}\n{FORM}'

    @property
    def files(self) -> dict[str, str]:
        """The reference page."""
        page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{self.title}</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<main>
<h1>{self.title}</h1>
{self.body}
</main>
<script src="script.js"></script>
</body>
</html>
"""
        return {"index.html": page, "style.css": self.look.style, "script.js": self.script}


def draw_request(rng: np.random.Generator) -> PageRequest:
    """A random request of a random kind."""
    return KINDS[pick(rng, tuple(KINDS))](rng)


SOURCE = Source(
    "front_end",
    draw_request,
    canonical=lambda request: canonical_json([request.kind, list(request.rules)]).decode(),  # whatever it looks like
    text=lambda request: request.text,
)


def _draw_look(rng: np.random.Generator) -> Look:
    return Look(pick(rng, tuple(ACCENTS)), pick(rng, tuple(BACKGROUNDS)), int(rng.integers(36, 65)) * 10)


def _draw_brand(rng: np.random.Generator) -> tuple[str, str]:
    """A name, and the word with which ids begin."""
    begin = pick(rng, BRAND_BEGINS)
    return f"{begin} {pick(rng, BRAND_ENDS)}", begin.lower()


def _several(rng: np.random.Generator, texts: Sequence[str], n: int) -> list[str]:
    return [texts[int(place)] for place in rng.permutation(len(texts))[:n]]


def draw_login(rng: np.random.Generator) -> PageRequest:
    """A login page for e-mail and phone."""
    brand, word = _draw_brand(rng)
    n_digits, n_characters = int(rng.integers(8, 13)), int(rng.integers(6, 13))
    account, password, send, message = (f"#{word}-{name}" for name in ("account", "password", "send", "message"))
    unknown = pick(rng, ("Enter an e-mail address or a phone number.", "This is neither e-mail nor phone."))
    short = f"Passwords have at least {n_characters} characters."
    welcome = pick(rng, ("Welcome,", "Signed in as", "Hello"))
    person = pick(rng, NAMES).lower()
    phone = "".join(str(digit) for digit in rng.integers(1, 10, size=n_digits))
    good = "x7" * n_characters

    def check(name: str, name_given: str, secret: str, expected: str) -> Check:
        steps = [["fill", account, name_given], ["fill", password, secret], ["click", send]]
        return {"name": name, "steps": [*steps, ["expect_text", message, expected]]}

    return PageRequest(
        kind="login",
        title=f"Sign in to {brand}",
        rules=[
            f'A field {account} with the label "E-mail or phone", a password field {password} with the label '
            f'"Password", and a button {send} with the text "Sign in".',
            f"An account is an e-mail address (a name, one @, a domain with a dot in it) or a phone number of exactly "
            f"{n_digits} digits and nothing else.",
            f"The button checks the account first, then the password, and writes one message into {message}: "
            f'"{unknown}", or "{short}" for a shorter password, or else '
            f'"{welcome} ACCOUNT" with what was entered. Nothing is sent.',
            f"Until then {message} is empty.",
        ],
        look=_draw_look(rng),
        parts=["h1", account, password, send],
        checks=[
            {"name": "there is no message at first", "steps": [["expect_visible", send], ["expect_hidden", message]]},
            {"name": "the password is hidden", "steps": [["expect_attribute", password, "type", "password"]]},
            check("an e-mail address is accepted", f"{person}@mail.org", good, f"{welcome} {person}@mail.org"),
            check("a phone number is accepted", phone, good, f"{welcome} {phone}"),
            check("a phone number that is too short is refused", phone[1:], good, unknown),
            check("a phone number that is too long is refused", f"{phone}4", good, unknown),
            check("a phone number with a letter is refused", f"{phone[1:]}a", good, unknown),
            check("an address without a dot in its domain is refused", f"{person}@mail", good, unknown),
            check("an address without a name is refused", "@mail.org", good, unknown),
            check("the shortest password is accepted", phone, good[:n_characters], f"{welcome} {phone}"),
            check("a shorter password is refused", phone, good[: n_characters - 1], short),
            check("the account is checked first", "", "", unknown),
        ],
        body=f"""<form id="{word}-form" novalidate>
<label for="{word}-account">E-mail or phone</label>
<input id="{word}-account" autocomplete="username">
<label for="{word}-password">Password</label>
<input id="{word}-password" type="password" autocomplete="current-password">
<button id="{word}-send">Sign in</button>
</form>
<p id="{word}-message" role="status"></p>""",
        script=f"""const form = document.getElementById("{word}-form");
form.addEventListener("submit", (event) => {{
  event.preventDefault();
  const account = document.getElementById("{word}-account").value;
  const password = document.getElementById("{word}-password").value;
  const isKnown = /^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$/.test(account) || /^[0-9]{{{n_digits}}}$/.test(account);
  let message = {json.dumps(welcome)} + " " + account;
  if (!isKnown) message = {json.dumps(unknown)};
  else if (password.length < {n_characters}) message = {json.dumps(short)};
  document.getElementById("{word}-message").textContent = message;
}});
""",
    )


def draw_counter(rng: np.random.Generator) -> PageRequest:
    """A number with buttons, a step and two bounds."""
    brand, word = _draw_brand(rng)
    noun, step, n_steps = pick(rng, THINGS), int(rng.integers(2, 10)), int(rng.integers(3, 6))
    low = int(rng.integers(-20, 21))
    start = low + step * int(rng.integers(1, n_steps))
    high = low + step * n_steps
    value, plus, minus, reset = (f"#{word}-{name}" for name in ("value", "plus", "minus", "reset"))
    n_up, n_down = (high - start) // step, (start - low) // step

    def check(name: str, clicks: Sequence[str], expected: int) -> Check:
        return {"name": name, "steps": [*(["click", part] for part in clicks), ["expect_text", value, str(expected)]]}

    return PageRequest(
        kind="counter",
        title=f"{brand}: {noun}",
        rules=[
            f"A number of {noun} in {value}, {start} at first and nothing else in it.",
            f'Buttons {plus} ("More"), {minus} ("Fewer") and {reset} ("Reset").',
            f"More adds {step}, fewer takes {step} away, reset goes back to {start}.",
            f"The number never falls below {low} nor rises above {high}: a click that would change it so does nothing.",
        ],
        look=_draw_look(rng),
        parts=["h1", value, plus, minus, reset],
        checks=[
            check("more adds a step", [plus], start + step),
            check("fewer takes a step away", [minus], start - step),
            check("more and fewer cancel out", [plus, minus], start),
            check("it reaches the upper bound", [plus] * n_up, high),
            check("it stays at the upper bound", [plus] * (n_up + 1), high),
            check("it reaches the lower bound", [minus] * n_down, low),
            check("it stays at the lower bound", [minus] * (n_down + 1), low),
            check("it comes back from a bound", [*[plus] * (n_up + 2), minus], high - step),
            check("reset goes back", [plus, reset], start),
        ],
        body=f"""<p>Number of {noun}: <output id="{word}-value">{start}</output></p>
<button type="button" id="{word}-plus">More</button>
<button type="button" id="{word}-minus">Fewer</button>
<button type="button" id="{word}-reset">Reset</button>""",
        script=f"""const output = document.getElementById("{word}-value");
const show = (number) => {{
  if (number >= {low} && number <= {high}) output.textContent = String(number);
}};
const onClick = (name, change) =>
  document.getElementById("{word}-" + name).addEventListener("click", () => show(change(Number(output.textContent))));
onClick("plus", (number) => number + {step});
onClick("minus", (number) => number - {step});
onClick("reset", () => {start});
""",
    )


def draw_sign_up(rng: np.random.Generator) -> PageRequest:
    """A form with rules that are checked in order."""
    brand, word = _draw_brand(rng)
    n_characters, age = int(rng.integers(6, 13)), int(rng.integers(14, 22))
    names = ("name", "age", "password", "again", "terms", "join", "message")
    name, years, password, again, terms, join, message = (f"#{word}-{part}" for part in names)
    person = pick(rng, NAMES)
    good = "k9" * n_characters
    no_name, too_young = "Enter a name.", f"You have to be {age} or older."
    weak = f"Passwords have {n_characters} or more characters and a digit."
    different, not_agreed = "The passwords differ.", pick(rng, ("Agree to the terms.", "The terms are not agreed to."))
    welcome = f"{pick(rng, ('Account made for', 'Welcome,', 'Joined:'))} {person}"

    def check(
        title: str,
        expected: str,
        *,
        entered: str = person,
        years_given: str = str(age),
        secret: str = good,
        repeated: str | None = None,
        agrees: bool = True,
    ) -> Check:
        fields = {name: entered, years: years_given, password: secret, again: secret if repeated is None else repeated}
        steps: list[JsonValue] = [["fill", field, text] for field, text in fields.items()]
        steps += [["click", terms]] if agrees else []
        return {"name": title, "steps": [*steps, ["click", join], ["expect_text", message, expected]]}

    return PageRequest(
        kind="sign-up",
        title=f"Join {brand}",
        rules=[
            f'Fields {name} ("Name"), {years} ("Age", of the type number), {password} ("Password") and {again} '
            f'("Password again"), both of the type password, a checkbox {terms} ("I agree to the terms") '
            f'and a button {join} ("Join"). The texts are labels.',
            f"The button checks in this order, and writes the first message that applies into {message}: "
            f'"{no_name}" for a name that is empty or blank; "{too_young}" for an age below {age}, or none; "{weak}" '
            f'for a password that is shorter or has no digit; "{different}"; "{not_agreed}".',
            f'If nothing is wrong, it writes "{welcome.removesuffix(person)}NAME" with the name that was entered. '
            f"Nothing is sent. Until then {message} is empty.",
        ],
        look=_draw_look(rng),
        parts=["h1", name, years, password, again, terms, join],
        checks=[
            {"name": "there is no message at first", "steps": [["expect_visible", join], ["expect_hidden", message]]},
            {"name": "the password is hidden", "steps": [["expect_attribute", again, "type", "password"]]},
            check("somebody of the least age joins", welcome),
            check("a name is needed", no_name, entered=""),
            check("a blank name is none", no_name, entered="  "),
            check("somebody younger is refused", too_young, years_given=str(age - 1)),
            check("an age is needed", too_young, years_given=""),
            check("an age of three digits is no text", welcome, years_given="100"),
            check("the shortest password is accepted", welcome, secret=good[:n_characters]),
            check("a shorter password is refused", weak, secret=good[: n_characters - 1]),
            check("a password needs a digit", weak, secret="k" * n_characters),
            check("passwords have to be the same", different, repeated=f"{good}0"),
            check("the terms are needed", not_agreed, agrees=False),
            check("the first fault is the one that is named", no_name, entered="", years_given="3", agrees=False),
        ],
        body=f"""<form id="{word}-form" novalidate>
<label for="{word}-name">Name</label>
<input id="{word}-name" autocomplete="name">
<label for="{word}-age">Age</label>
<input id="{word}-age" type="number">
<label for="{word}-password">Password</label>
<input id="{word}-password" type="password" autocomplete="new-password">
<label for="{word}-again">Password again</label>
<input id="{word}-again" type="password" autocomplete="new-password">
<label for="{word}-terms">I agree to the terms</label>
<input id="{word}-terms" type="checkbox">
<button id="{word}-join">Join</button>
</form>
<p id="{word}-message" role="status"></p>""",
        script=f"""const field = (name) => document.getElementById("{word}-" + name);
const messageFor = () => {{
  const password = field("password").value;
  const age = field("age").value;
  if (!field("name").value.trim()) return {json.dumps(no_name)};
  if (!age || Number(age) < {age}) return {json.dumps(too_young)};
  if (password.length < {n_characters} || !/[0-9]/.test(password)) return {json.dumps(weak)};
  if (password !== field("again").value) return {json.dumps(different)};
  if (!field("terms").checked) return {json.dumps(not_agreed)};
  return {json.dumps(welcome.removesuffix(person))} + field("name").value.trim();
}};
field("form").addEventListener("submit", (event) => {{
  event.preventDefault();
  field("message").textContent = messageFor();
}});
""",
    )


def draw_tasks(rng: np.random.Generator) -> PageRequest:
    """A list of tasks that grows and shrinks, up to a bound."""
    brand, word = _draw_brand(rng)
    chores = _several(rng, CHORES, 8)
    n_first = int(rng.integers(1, 4))
    bound = n_first + int(rng.integers(2, 4))
    first, further = chores[:n_first], chores[n_first:]
    unit = pick(rng, ("left", "to do", "open"))
    entry, add, tasks, status = (f"#{word}-{name}" for name in ("new", "add", "tasks", "left"))
    texts = f"{tasks} li span"

    def added(*names: str) -> list[JsonValue]:
        return [step for name in names for step in (["fill", entry, name], ["click", add])]

    def check(title: str, steps: Sequence[JsonValue], expected: Sequence[str]) -> Check:
        end = [["expect_texts", texts, list(expected)], ["expect_text", status, f"{len(expected)} {unit}"]]
        return {"name": title, "steps": [*steps, *end]}

    n_free = bound - n_first
    return PageRequest(
        kind="tasks",
        title=f"Tasks of {brand}",
        rules=[
            f'A field {entry} with the label "New task", a button {add} ("Add"), a list {tasks} and a text {status}.',
            f"The list has these tasks at first: {', '.join(first)}. Each task is a li with its text in a span and "
            f'a button "Done", which removes it.',
            f"Add, or the key Enter in the field, puts what was entered at the end of the list, without blanks around "
            f"it, and empties the field. What is blank is not added, nor a task that is on the list already, nor more "
            f"than {bound} tasks.",
            f'{status} is the number of tasks and the words "{unit}", as "{n_first} {unit}".',
        ],
        look=_draw_look(rng),
        parts=["h1", entry, add, tasks, status],
        checks=[
            check("the first tasks are there", [], first),
            check("a task is added at the end", added(further[0]), [*first, further[0]]),
            check("Enter adds it, too", [["fill", entry, further[0]], ["press", entry, "Enter"]], [*first, further[0]]),
            {"name": "the field is emptied", "steps": [*added(further[0]), ["expect_value", entry, ""]]},
            check("blanks around it are left out", added(f"  {further[0]} ", further[0]), [*first, further[0]]),
            check("a blank task is not added", added("   ", ""), first),
            check("a task is not added twice", added(first[0]), first),
            check("markup is text", added("<b>new</b>"), [*first, "<b>new</b>"]),
            check("done removes it", [["click", f"{tasks} li:nth-child(1) button"]], first[1:]),
            check(
                "done removes one that was added",
                [*added(further[0]), ["click", f"{tasks} li:nth-child({n_first + 1}) button"]],
                first,
            ),
            check("the list is full", added(*further[: n_free + 1]), [*first, *further[:n_free]]),
            check(
                "a full list has room again",
                [*added(*further[:n_free]), ["click", f"{tasks} li:nth-child(1) button"], *added(further[n_free])],
                [*first[1:], *further[: n_free + 1]],
            ),
        ],
        body=f"""<form id="{word}-form">
<label for="{word}-new">New task</label>
<input id="{word}-new" autocomplete="off">
<button id="{word}-add">Add</button>
</form>
<ul id="{word}-tasks"></ul>
<p id="{word}-left" role="status"></p>""",
        script=f"""const tasks = {json.dumps(first)};
const entry = document.getElementById("{word}-new");
const show = () => {{
  const list = document.getElementById("{word}-tasks");
  list.replaceChildren(...tasks.map((task, place) => {{
    const row = document.createElement("li");
    const text = document.createElement("span");
    const done = document.createElement("button");
    text.textContent = task;
    done.type = "button";
    done.textContent = "Done";
    done.addEventListener("click", () => {{ tasks.splice(place, 1); show(); }});
    row.append(text, " ", done);
    return row;
  }}));
  document.getElementById("{word}-left").textContent = tasks.length + {json.dumps(f" {unit}")};
}};
document.getElementById("{word}-form").addEventListener("submit", (event) => {{
  event.preventDefault();
  const task = entry.value.trim();
  if (task && !tasks.includes(task) && tasks.length < {bound}) tasks.push(task);
  entry.value = "";
  show();
}});
show();
""",
    )


def draw_tabs(rng: np.random.Generator) -> PageRequest:
    """Tabs with a panel each, by click and by arrow keys."""
    brand, word = _draw_brand(rng)
    n_tabs = int(rng.integers(3, 5))
    topics, sentences = _several(rng, TOPICS, n_tabs), _several(rng, SENTENCES, n_tabs)
    first = int(rng.integers(n_tabs))
    tabs = [f"#{word}-tab-{number + 1}" for number in range(n_tabs)]
    panels = [f"#{word}-panel-{number + 1}" for number in range(n_tabs)]

    def check(title: str, steps: Sequence[JsonValue], chosen: int) -> Check:
        hidden = [["expect_hidden", panel] for number, panel in enumerate(panels) if number != chosen]
        return {"name": title, "steps": [*steps, ["expect_text", panels[chosen], sentences[chosen]], *hidden]}

    after = [(number + 1) % n_tabs for number in range(n_tabs)]
    listed = "; ".join(
        f'{tab} ("{topic}") shows {panel}: "{sentence}"'
        for tab, topic, panel, sentence in zip(tabs, topics, panels, sentences, strict=True)
    )
    buttons = "\n".join(
        f'<button type="button" role="tab" id="{word}-tab-{number + 1}" aria-controls="{word}-panel-{number + 1}" '
        f'aria-selected="{str(number == first).lower()}">{topic}</button>'
        for number, topic in enumerate(topics)
    )
    sections = "\n".join(
        f'<section role="tabpanel" id="{word}-panel-{number + 1}" aria-labelledby="{word}-tab-{number + 1}"'
        f"{'' if number == first else ' hidden'}><p>{sentence}</p></section>"
        for number, sentence in enumerate(sentences)
    )
    return PageRequest(
        kind="tabs",
        title=f"{brand}: questions",
        rules=[
            f"{n_tabs} tabs, which are buttons, and a panel for each: {listed}.",
            f"One panel is shown at a time, that of {tabs[first]} at first, and none of the others.",
            "A click on a tab shows its panel. The arrow key to the right, pressed on a tab, goes to the next tab and "
            "shows its panel; from the last tab it goes to the first. The arrow to the left does the opposite.",
        ],
        look=_draw_look(rng),
        parts=["h1", *tabs, panels[first]],
        checks=[
            check("one panel is shown at first", [], first),
            *(
                check(f"tab {number + 1} shows its panel", [["click", tabs[number]]], number)
                for number in range(n_tabs)
            ),
            check("another tab replaces it", [["click", tabs[first]], ["click", tabs[after[first]]]], after[first]),
            check("to the right", [["click", tabs[0]], ["press", tabs[0], "ArrowRight"]], 1),
            check("to the right from the last", [["click", tabs[-1]], ["press", tabs[-1], "ArrowRight"]], 0),
            check("to the left", [["click", tabs[1]], ["press", tabs[1], "ArrowLeft"]], 0),
            check("to the left from the first", [["click", tabs[0]], ["press", tabs[0], "ArrowLeft"]], n_tabs - 1),
        ],
        body=f'<div role="tablist" aria-label="Questions">\n{buttons}\n</div>\n{sections}',
        script=f"""const tabs = [...document.querySelectorAll("[role=tab]")];
const choose = (chosen) => tabs.forEach((tab, place) => {{
  tab.setAttribute("aria-selected", String(place === chosen));
  document.getElementById(tab.getAttribute("aria-controls")).hidden = place !== chosen;
}});
tabs.forEach((tab, place) => {{
  tab.addEventListener("click", () => choose(place));
  tab.addEventListener("keydown", (event) => {{
    const step = {{ArrowRight: 1, ArrowLeft: {n_tabs - 1}}}[event.key];
    if (!step) return;
    const next = (place + step) % {n_tabs};
    tabs[next].focus();
    choose(next);
  }});
}});
""",
    )


def draw_table(rng: np.random.Generator) -> PageRequest:
    """A table that sorts by any of its columns, in both directions, and can be filtered."""
    brand, word = _draw_brand(rng)
    nouns = _several(rng, THINGS, 5)
    # one, two and three digits: sorted as texts they are in another order
    prices = [int(price) for price in rng.permutation([*rng.choice(90, 2, replace=False) + 10, 5, 100, 700])]
    stocks = [int(stock) for stock in rng.permutation([*rng.choice(90, 3, replace=False) + 10, 8, 300])]
    rows = list(zip(nouns, prices, stocks, strict=True))
    columns = ("item", "price", "stock")
    heads = [f"#{word}-by-{column}" for column in columns]
    body, search = f"#{word}-rows", f"#{word}-search"
    cells = f"{body} tr td:first-child"
    letter = pick(rng, "aelst")

    def in_order(column: int, *, falls: bool = False) -> list[str]:
        return [row[0] for row in sorted(rows, key=lambda row: row[column], reverse=falls)]

    def check(title: str, steps: Sequence[JsonValue], expected: Sequence[str]) -> Check:
        return {"name": title, "steps": [*steps, ["expect_texts", cells, list(expected)]]}

    with_letter = [noun for noun in in_order(1) if letter in noun]
    listed = "; ".join(f"{noun}, {price}, {stock}" for noun, price, stock in rows)
    head = "".join(
        f'<th scope="col"><button type="button" id="{word}-by-{column}">{column.title()}</button></th>'
        for column in columns
    )
    return PageRequest(
        kind="table",
        title=f"Stock of {brand}",
        rules=[
            f"A table with the columns Item, Price and Stock and these rows, in this order at first: {listed}. Its "
            f"rows are in the tbody {body}, the item in the first cell.",
            f"The heads of the columns have buttons {', '.join(heads)} with the column's name. A click sorts by that "
            f"column from the smallest, a second click on the same one from the largest; numbers sort as numbers.",
            f'A field {search} with the label "Search": as something is entered, only rows whose item contains it are '
            f"shown, in any case of its letters. Sorting goes on as before.",
        ],
        look=_draw_look(rng),
        parts=["h1", *heads, body, search],
        checks=[
            check("rows are in the order that was given", [], nouns),
            check("items sort", [["click", heads[0]]], in_order(0)),
            check("prices sort as numbers", [["click", heads[1]]], in_order(1)),
            check("stocks sort as numbers", [["click", heads[2]]], in_order(2)),
            check("a second click turns it", [["click", heads[1]]] * 2, in_order(1, falls=True)),
            check("a third click turns it back", [["click", heads[2]]] * 3, in_order(2)),
            check("another column begins from the smallest", [["click", heads[1]], ["click", heads[2]]], in_order(2)),
            check("search", [["fill", search, nouns[3][:3]]], [noun for noun in nouns if nouns[3][:3] in noun]),
            check("search in capitals", [["fill", search, nouns[1].upper()]], [nouns[1]]),
            check("nothing is found", [["fill", search, "zzz"]], []),
            check("all rows come back", [["fill", search, "zzz"], ["fill", search, ""]], nouns),
            check("what is found is sorted", [["click", heads[1]], ["fill", search, letter]], with_letter),
        ],
        body=f"""<label for="{word}-search">Search</label>
<input id="{word}-search" type="search">
<table>
<thead><tr>{head}</tr></thead>
<tbody id="{word}-rows"></tbody>
</table>""",
        script=f"""const rows = {json.dumps(rows)};
let column = -1;
let isFalling = false;
const search = document.getElementById("{word}-search");
const show = () => {{
  const sorted = rows.filter((row) => row[0].toLowerCase().includes(search.value.toLowerCase()));
  if (column >= 0) sorted.sort((a, b) => (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0));
  if (isFalling) sorted.reverse();
  document.getElementById("{word}-rows").replaceChildren(...sorted.map((row) => {{
    const line = document.createElement("tr");
    line.append(...row.map((value) => Object.assign(document.createElement("td"), {{textContent: String(value)}})));
    return line;
  }}));
}};
{json.dumps(columns)}.forEach((name, place) =>
  document.getElementById("{word}-by-" + name).addEventListener("click", () => {{
    isFalling = column === place && !isFalling;
    column = place;
    show();
  }}));
search.addEventListener("input", show);
show();
""",
    )


KINDS: Mapping[str, Callable[[np.random.Generator], PageRequest]] = MappingProxyType(
    {
        "login": draw_login,
        "sign-up": draw_sign_up,
        "counter": draw_counter,
        "tasks": draw_tasks,
        "tabs": draw_tabs,
        "table": draw_table,
    }
)
"""How a request of each kind is drawn."""
