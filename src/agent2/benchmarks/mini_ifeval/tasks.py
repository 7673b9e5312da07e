"""Writing tasks: a scene, one hard instruction, and often a second one; each task knows a text that follows all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent2.benchmarks.mini_ifeval import wishes as w
from agent2.benchmarks.mini_ifeval.writing import ADJECTIVES, TOPICS, Scene
from agent2.records import canonical_json
from agent2.scorers.constraints.text import count_words

SHORT = "short"
"""Stands for the instruction to stay below a number of words, which depends on the text."""
_SECOND_SHARE = 0.5
_SCENE_SIZE = 5


@dataclass(frozen=True, slots=True)
class WritingTask:
    """One item before it is put into words."""

    scene: Scene
    wishes: Sequence[w.Wish]
    """One or two; the first is a hard one."""

    @property
    def prompt(self) -> str:
        """The user message."""
        return f"Write about the {self.scene.topic}. {' '.join(wish.wording for wish in self.wishes)}"

    @property
    def answer(self) -> str:
        """A text that follows every instruction."""
        return compose(self.scene, self.wishes)


def draw_task(rng: np.random.Generator) -> WritingTask:
    """A random task."""
    names = list(ADJECTIVES)
    places = rng.choice(len(names), size=_SCENE_SIZE, replace=False)
    scene = Scene(w.pick(rng, list(TOPICS)), tuple(names[int(place)] for place in places))
    first = w.draw_wish(rng, w.pick(rng, w.HARD), scene)
    if rng.random() >= _SECOND_SHARE:
        return WritingTask(scene, (first,))
    others = [name for name in (*w.HARD, *w.EASY) if w.go_together(first.name, name)]
    chosen = w.pick(rng, [*others, *([SHORT] if first.name != w.WORDS else [])])
    if chosen == SHORT:
        limit = count_words(compose(scene, (first,))) + int(rng.integers(1, 3))
        return WritingTask(scene, (first, w.short_text(limit)))
    return WritingTask(scene, (first, w.draw_wish(rng, chosen, scene)))


def canonical(task: WritingTask) -> str:
    """Topic and instructions, in any order."""
    named = sorted([wish.name, sorted(wish.arguments.items())] for wish in task.wishes)
    return canonical_json([task.scene.topic, named]).decode()


def compose(scene: Scene, wishes: Sequence[w.Wish]) -> str:
    """A text for a scene that follows the wishes: its body first, then what goes around it."""
    by_name = {wish.name: wish.arguments for wish in wishes}
    text = _body(scene, by_name)
    if w.HIGHLIGHT in by_name:
        head, _, last = text.rpartition(" ")
        text = f"{head} *{last}*"
    if w.TITLE in by_name:
        text = f"<<{scene.topic}>>\n{text}"
    if w.END in by_name:
        text = f"{text} {by_name[w.END]['end_phrase']}"
    if w.CAPITALS in by_name:
        text = text.upper()
    return f'"{text}"' if w.QUOTES in by_name else text


def run_for(n_words: int) -> int:
    """How many adjectives "the cat is red and old ..." needs to have so many words."""
    return max(1, (n_words - 1) // 2)


def _body(scene: Scene, by_name: Mapping[str, w.Arguments]) -> str:
    tail = f" in the {by_name[w.KEYWORD]['keywords'][0]}" if w.KEYWORD in by_name else ""
    if by_name.get(w.WORDS, {}).get("relation") == "at least":
        scene = replace(scene, run=run_for(by_name[w.WORDS]["num_words"]))
    if w.JSON in by_name:
        return f'{{"{scene.topic}": "{scene.phrase()}{tail}"}}'
    if w.BULLETS in by_name:
        points = [f"* {scene.phrase(place)}" for place in range(by_name[w.BULLETS]["num_bullets"])]
        return "\n".join([points[0] + tail, *points[1:]])
    if w.SENTENCES in by_name:
        sentences = [scene.sentence(place) for place in range(by_name[w.SENTENCES]["num_sentences"])]
        return " ".join(f"{sentence}." for sentence in [sentences[0] + tail, *sentences[1:]])
    return scene.sentence(language=by_name.get(w.LANGUAGE, {}).get("language", "en")) + tail
