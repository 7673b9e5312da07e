"""Episodes of MiniWoB++ that are looked at: the pages of `miniwob_worker` as a picture, or as tree and picture.

The name of a set ends in the observation: `click-test-screenshot`, `twenty-both`. The picture is the page in a window
of 160 x 210 pixels. With `screenshot` no tree is shown, so calls name places by pixels of the picture; with `both` they
are those of the tree. Pages, seeds, moves and rewards are those of `miniwob_worker`.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import miniwob_worker as pages
from miniwob_players import PLAYERS, Outline

SCREENSHOT, BOTH = "screenshot", "both"
OBSERVATIONS = (SCREENSHOT, BOTH)
WIDTH, HEIGHT = 160, 210
"""Of the window and the picture, in pixels: every task of the package is laid out for them."""
SCREENSHOT_TIMEOUT_MS = 20_000
pages.FLAGS = (*pages.FLAGS, "--disable-smooth-scrolling")  # else a picture may show a page on its way
LAST_SENTENCES = pages.SYSTEM.partition("element. ")[2]
SYSTEM = {
    SCREENSHOT: (
        f"You operate a web page. You see a picture of it, {WIDTH} x {HEIGHT} pixels; x counts pixels from its left "
        f"edge and y from its top edge. {LAST_SENTENCES}"
    ),
    BOTH: (
        "You operate a web page. You see a picture of it, and its accessibility tree, in which [ref=...] names an "
        f"element. {LAST_SENTENCES}"
    ),
}
X = {"type": "integer", "description": f"pixels from the left edge of the picture, 0 to {WIDTH - 1}"}
Y = {"type": "integer", "description": f"pixels from the top edge of the picture, 0 to {HEIGHT - 1}"}
KEY = {"type": "string", "enum": list(pages.KEYS)}
DIRECTION = {"type": "string", "enum": ["up", "down"]}
TOOLS = [
    pages._function("click", "Click on a place.", x=X, y=Y),
    pages._function("type", "Type a text where the cursor is, as after a click on a field.", text=pages.TEXT),
    pages._function("press", "Press a key.", key=KEY),
    pages._function("scroll", "Turn the mouse's wheel at a place by about a page.", x=X, y=Y, direction=DIRECTION),
]


class SeenPage(pages.PageEpisode):  # type: ignore[misc]  # the module beside this one is found when a worker runs
    """A page that is shown as a picture, with its tree or without."""

    def __init__(self, task: str, seed: int, observation: str) -> None:
        self._observation = observation
        super().__init__(task, seed)
        self._page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def tree(self) -> str:
        """The accessibility tree; empty where it is not shown."""
        return str(super().tree()) if self._observation == BOTH else ""

    def outline(self) -> Outline:
        """The accessibility tree for the task's player, whatever is shown."""
        return Outline(super().tree())

    def screenshot(self) -> str:
        """Base64 of a PNG."""
        # animations of style sheets do not follow the page's clock
        png = self._page.screenshot(animations="disabled", timeout=SCREENSHOT_TIMEOUT_MS)
        return base64.b64encode(png).decode()

    def apply(self, move: dict[str, Any]) -> dict[str, Any]:
        """What comes back for a message, with a picture while the episode goes on."""
        reply: dict[str, Any] = super().apply(move)
        if reply["results"] is not None:
            reply["results"] = [result.rstrip() for result in reply["results"]]
        return reply if self.is_over else {**reply, "pictures": [self.screenshot()]}

    def _result(self, name: str, arguments: dict[str, Any]) -> str:
        """Carry out a call. What the agent got wrong comes back as words."""
        if self._observation == BOTH:
            return str(super()._result(name, arguments))
        if name not in ACTIONS:
            return f"error: there is no function {name!r}; there are {', '.join(ACTIONS)}"
        schemas = next(tool["function"]["parameters"]["properties"] for tool in TOOLS if _name_of(tool) == name)
        if arguments.keys() != schemas.keys():
            return f"error: {name} takes {', '.join(schemas)}"
        values: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in ("x", "y"):
                values[key] = _pixels(value)
                if values[key] is None:
                    return f"error: {key} is {str(value)[:40]!r}; give a number of pixels"
                continue
            values[key] = str(value)[: pages.MAX_TEXT_CHARACTERS]
            if values[key] not in schemas[key].get("enum", (values[key],)):
                return f"error: {key} is one of {', '.join(schemas[key]['enum'])}"
        if not (0 <= values.get("x", 0) < WIDTH and 0 <= values.get("y", 0) < HEIGHT):
            return (
                f"error: ({values['x']:g}, {values['y']:g}) is outside the picture of {WIDTH} x {HEIGHT} pixels; "
                f"x is 0 to {WIDTH - 1} and y 0 to {HEIGHT - 1}"
            )
        ACTIONS[name](self, **values)
        self._settle()
        return "done"

    def click_at(self, x: float, y: float) -> None:
        """Click on a place."""
        self._page.mouse.click(x, y)

    def type_text(self, text: str) -> None:
        """Type where the cursor is."""
        self._page.keyboard.type(text)

    def scroll_at(self, x: float, y: float, direction: str) -> None:
        """Turn the wheel at a place."""
        self._page.mouse.move(x, y)
        self._page.mouse.wheel(0, 200 if direction == "down" else -200)

    def is_below(self, arguments: dict[str, Any]) -> bool:
        """Whether an element that is named is further down than the picture shows, where pictures decide."""
        if self._observation == BOTH or "ref" not in arguments:
            return False
        box = self._element(arguments["ref"]).bounding_box(timeout=pages.TIMEOUT_MS)
        return bool(box["y"] + box["height"] / 2 >= HEIGHT)

    def calls_for(self, tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """The calls that stand for one of the task's player, which names elements."""
        if self._observation == BOTH or "ref" not in arguments:
            return [_call(tool, **arguments)]
        box = self._element(arguments["ref"]).bounding_box(timeout=pages.TIMEOUT_MS)
        place = {"x": int(box["x"] + box["width"] / 2), "y": int(box["y"] + box["height"] / 2)}
        if tool == "scroll":
            return [_call("scroll", **place, direction=arguments["direction"])]
        calls = [_call("click", **place)]
        if tool == "type":
            calls += [
                _call("press", key="Control+A"),
                _call("press", key="Delete"),
                _call("type", text=arguments["text"]),
            ]
        if tool == "select":  # the letters of an option choose it
            calls.append(_call("type", text=arguments["option"]))
        return calls


ACTIONS: Mapping[str, Callable[..., None]] = {
    "click": SeenPage.click_at,
    "type": SeenPage.type_text,
    "press": SeenPage.press,
    "scroll": SeenPage.scroll_at,
}


def _name_of(tool: Mapping[str, Any]) -> str:
    return str(tool["function"]["name"])


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _pixels(value: object) -> float | None:
    """A number as a call gives it; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _parts(name: str) -> tuple[str, str]:
    """Set and observation of a name. Raises RuntimeError."""
    inner, _, observation = name.rpartition("-")
    if observation not in OBSERVATIONS or inner not in (pages.ALL, *pages.TASKS):
        raise RuntimeError(f"there is no set {name}")
    return inner, observation


def _place(name: str, portion: str, number: int) -> tuple[str, int, str]:
    """Task, seed and observation of an item."""
    inner, observation = _parts(name)
    return (*pages._place(inner, portion, number), observation)


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an episode may be."""
    return dict(pages.open_set(_parts(name)[0]))


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """All items from there on; their pages are opened when they are played."""
    inner, observation = _parts(name)
    tools = TOOLS if observation == SCREENSHOT else pages.TOOLS
    offered = {"messages": [{"role": "system", "content": SYSTEM[observation]}], "tools": tools}
    return [{**item, **offered} for item in pages.items(inner, portion, start)]


def open_episode(name: str, portion: str, number: int) -> list[dict[str, Any]]:
    """The first messages of an episode; its page is kept."""
    task, seed, observation = _place(name, portion, number)
    episode = SeenPage(task, seed, observation)
    picture = episode.screenshot()
    pages._keep(_key(name, task, seed, []), episode)
    text = f"Task: {episode.utterance}\nPage: {task}\n\n{episode.opening}".rstrip()
    return [
        {"role": "system", "content": SYSTEM[observation]},
        {"role": "user", "content": text, "pictures": [picture]},
    ]


def expect(name: str, portion: str, number: int) -> list[str]:
    """Messages of the task's player, from the page's start to its reward; it reads the tree, whatever is shown."""
    task, seed, observation = _place(name, portion, number)
    episode = SeenPage(task, seed, observation)
    messages: list[str] = []

    def play(calls: list[dict[str, Any]]) -> None:
        episode.apply({"calls": calls})
        messages.append(json.dumps(calls[0] if len(calls) == 1 else calls))

    try:
        for tool, arguments in PLAYERS[task](episode.utterance, episode.outline):
            if episode.is_below(arguments):
                play([_call("scroll", x=WIDTH // 2, y=HEIGHT // 2, direction="down")])
            play(episode.calls_for(tool, arguments))
            if episode.is_over or len(messages) == pages.MAX_MESSAGES:
                break
    finally:
        episode.close()
    return messages


def _key(name: str, task: str, seed: int, moves: list[Any]) -> str:
    return str(pages._key(f"{name}: {task}", seed, moves))


def _episode(name: str, task: str, seed: int, moves: list[Any]) -> SeenPage:
    """The page after these moves, taken from those that are kept or played again."""
    episode: SeenPage | None = pages._kept.pop(_key(name, task, seed, moves), None)
    if episode is None:
        episode = SeenPage(task, seed, _parts(name)[1])
        for move in moves:
            episode.apply(move)
    return episode


def advance(name: str, portion: str, number: int, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes back for the last of these moves."""
    task, seed, _ = _place(name, portion, number)
    episode = _episode(name, task, seed, moves[:-1])
    try:
        reply = episode.apply(moves[-1])
    except BaseException:
        episode.close()
        raise
    pages._keep(_key(name, task, seed, moves), episode)
    return reply


def score(name: str, portion: str, number: int, prompt_sha256: str, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """The page's reward, from 0 to 1."""
    task, seed, _ = _place(name, portion, number)
    pages._keep(pages._key(task, seed, moves), _episode(name, task, seed, moves))
    return dict(pages.score(_parts(name)[0], portion, number, prompt_sha256, moves))


METHODS = {
    "open_set": open_set,
    "items": items,
    "open": open_episode,
    "expect": expect,
    "advance": advance,
    "score": score,
}
