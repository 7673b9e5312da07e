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


KINDS: Mapping[str, Callable[[np.random.Generator], PageRequest]] = MappingProxyType(
    {"login": draw_login, "counter": draw_counter}
)
"""How a request of each kind is drawn."""
