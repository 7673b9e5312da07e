"""Three mini benchmarks of pictures: `mini_shapes`, `mini_charts` and `mini_documents`.

Each item is a picture of 64 x 64 pixels that is drawn from a seed, and a question with an exact answer that cannot be
known without it: four shapes in a square, a bar chart with a labelled axis, a small table or a page of four lines.
Numbers and letters are bitmaps of 5 x 7 pixels, and a file is an uncompressed bitmap, so that an item has the same
picture with the same digest on every machine.

Items say which wrong answers a misreading leads to (`scorers.vision_answers`): the value on another axis
(`chart_axis_value_misread`), the cell of another header (`table_header_binding_error`), the shape on another side
(`geometry_diagram_spatial_relation_error`), the digit that looks alike (`ocr_error`).

Promises: no two splits share a scene (what is drawn, whatever is asked about it). Does NOT compare with published
benchmarks: a model that reads these pictures reads nothing else.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from agent2.benchmarks.home import Source
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.pictures import PICTURES, Preparation, read_picture, to_payload
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.vision_answers import MISTAKES, RelaxedAccuracyScorer

SIDE = 64
"""Pixels of a picture's sides."""
CELL = 16
"""Pixels of a cell of the grid in which charts, tables and pages are laid out."""
UNIT = 12
"""Pixels of a bar for each unit of its axis."""
COLOURS = ("red", "green", "blue", "gold")
SHAPES = ("circle", "square", "triangle", "cross")
AXES: Mapping[str, int] = MappingProxyType({"5": 1, "10": 2, "20": 4})
"""What the top of the axis says -> the value of one of its five units."""
COLUMNS, ROWS = "ABCDE", "PRSTU"
"""Letters that name columns and rows."""
PREPARATION = Preparation(max_side=SIDE)
_PALETTE = (255, 255, 255, 20, 20, 20, 214, 40, 40, 30, 150, 60, 40, 80, 220, 230, 170, 20, 170, 170, 170)
"""White, ink, the colours of `COLOURS` and grey, three numbers each."""
_INK, _GREY = 1, 6
_COLOUR_INDEX = {colour: 2 + place for place, colour in enumerate(COLOURS)}
_GLYPHS: Mapping[str, str] = MappingProxyType(
    {
        "0": "01110100011001110101110011000101110",
        "1": "00100011000010000100001000010001110",
        "2": "01110100010000100010001000100011111",
        "3": "11111000100010000010000011000101110",
        "4": "00010001100101010010111110001000010",
        "5": "11111100001111000001000011000101110",
        "6": "00110010001000011110100011000101110",
        "7": "11111000010001000100010000100001000",
        "8": "01110100011000101110100011000101110",
        "9": "01110100011000101111000010001001100",
        "A": "01110100011000110001111111000110001",
        "B": "11110100011000111110100011000111110",
        "C": "01110100011000010000100001000101110",
        "D": "11100100101000110001100011001011100",
        "E": "11111100001000011110100001000011111",
        "P": "11110100011000111110100001000010000",
        "R": "11110100011000111110101001001010001",
        "S": "01111100001000001110000010000111110",
        "T": "11111001000010000100001000010000100",
        "U": "10001100011000110001100011000101110",
    }
)
"""Seven rows of five pixels each."""
LOOKS_LIKE: Mapping[str, str] = MappingProxyType(
    {"0": "8", "1": "7", "2": "7", "3": "8", "4": "9", "5": "6", "6": "5", "7": "1", "8": "3", "9": "8"}
)
Pixels = NDArray[np.uint8]
"""Height x width, of places in the palette; or height x width x 3, of colours."""


@dataclass(frozen=True, slots=True)
class SceneQuestion:
    """A question that a scene answers."""

    kind: str
    text: str
    answer: str
    mistakes: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenQuestion:
    """A picture and a question about it."""

    kind: str
    """Of the question; the items' `task_type`."""
    scene: str
    """What is drawn, without where exactly: no two splits share it."""
    jitter: tuple[int, ...]
    """Where and how large exactly."""
    text: str
    answer: str
    mistakes: Mapping[str, Sequence[str]]
    cells: Sequence[Sequence[str]]
    """What each of the 16 cells of the grid shows, line by line, and the headers that it is under."""
    draw: Callable[[], Pixels]
    questions: Sequence[SceneQuestion]
    """All questions about the scene."""

    @classmethod
    def chosen(cls, rng: np.random.Generator, questions: Sequence[SceneQuestion], **scene: Any) -> "SeenQuestion":
        """One of the questions about a scene; each kind of them is equally likely."""
        kinds = list(dict.fromkeys(question.kind for question in questions))
        kind = kinds[int(rng.integers(len(kinds)))]
        of_kind = [question for question in questions if question.kind == kind]
        question = of_kind[int(rng.integers(len(of_kind)))]
        return cls(
            kind, text=question.text, answer=question.answer, mistakes=question.mistakes, questions=questions, **scene
        )

    def pixels(self) -> Pixels:
        """The picture in colours: height x width x 3."""
        return np.array(_PALETTE, np.uint8).reshape(-1, 3)[self.draw()]

    def picture(self) -> bytes:
        """The picture as an uncompressed bitmap with a palette."""
        from PIL import Image

        image = Image.fromarray(self.draw())
        image.putpalette(_PALETTE)
        stream = io.BytesIO()
        image.save(stream, "BMP")
        return stream.getvalue()


def draw_shapes(rng: np.random.Generator) -> SeenQuestion:
    """Four shapes in a square, each in a colour: which colour, what is beside what, how many of a colour."""
    order = [SHAPES[int(place)] for place in rng.permutation(len(SHAPES))]
    colours = [COLOURS[int(place)] for place in rng.integers(len(COLOURS), size=4)]
    sizes = tuple(int(size) for size in rng.integers(16, 25, size=4))
    offsets = tuple(int(offset) for offset in rng.integers(0, 7, size=8))
    questions = [
        SceneQuestion("color", f"What color is the {shape}?", colour)
        for shape, colour in zip(order, colours, strict=True)
    ]
    for place, shape in enumerate(order):
        for step, (first, second) in ((1, ("right of", "left of")), (2, ("below", "above"))):
            neighbour = order[place ^ step]
            text = f"What is {first if place ^ step > place else second} the {shape}?"
            wrong = [name for name in SHAPES if name not in (shape, neighbour)]
            questions.append(
                SceneQuestion("beside", text, neighbour, {"geometry_diagram_spatial_relation_error": wrong})
            )
    questions += [
        SceneQuestion("count", f"How many shapes are {colour}?", str(colours.count(colour))) for colour in COLOURS
    ]
    quadrants = [row // 2 * 2 + column // 2 for row in range(4) for column in range(4)]
    return SeenQuestion.chosen(
        rng,
        questions,
        scene=" ".join(f"{colour} {name}" for colour, name in zip(colours, order, strict=True)),
        jitter=(*sizes, *offsets),
        cells=[(colours[place], order[place]) for place in quadrants],
        draw=lambda: _shapes(order, colours, sizes, offsets),
    )


def draw_chart(rng: np.random.Generator) -> SeenQuestion:
    """Three bars and an axis of five units: the value of a bar, the highest bar, the difference of two."""
    colours = [COLOURS[int(place)] for place in rng.permutation(len(COLOURS))[:3]]
    units = [int(unit) for unit in rng.permutation(5)[:3] + 1]
    top = list(AXES)[int(rng.integers(len(AXES)))]
    offsets = tuple(int(offset) for offset in rng.integers(0, 4, size=4))
    bars = sorted(zip(units, colours, strict=True))
    questions = [SceneQuestion("highest", "Which bar is highest?", bars[-1][1])]
    for unit, colour in bars:
        questions.append(_of_units("value", f"What is the value of {colour}?", unit, top))
    for (low, lower), (high, higher) in combinations(bars, 2):
        questions.append(_of_units("difference", f"How much higher is {higher} than {lower}?", high - low, top))
    columns = [(top[0],), *((colour, str(unit), top[0]) for colour, unit in zip(colours, units, strict=True))]
    return SeenQuestion.chosen(
        rng,
        questions,
        scene=f"{top}: " + " ".join(f"{colour} {unit}" for colour, unit in zip(colours, units, strict=True)),
        jitter=offsets,
        cells=columns * 4,
        draw=lambda: _chart(colours, units, top, offsets),
    )


def draw_document(rng: np.random.Generator) -> SeenQuestion:
    """A table of nine digits under headers, or a page of four lines with a number each."""
    offsets = tuple(int(offset) for offset in rng.integers(0, 3, size=2))
    is_table = bool(rng.integers(2))
    if is_table:
        columns = [COLUMNS[int(place)] for place in rng.permutation(len(COLUMNS))[:3]]
        rows = [ROWS[int(place)] for place in rng.permutation(len(ROWS))[:3]]
        digits = [[str(digit) for digit in line] for line in rng.integers(10, size=(3, 3)).tolist()]
        lines = [[" ", *columns], *([name, *line] for name, line in zip(rows, digits, strict=True))]
        questions = []
        for row, column in product(range(3), repeat=2):
            beside = {*digits[row], *(line[column] for line in digits)}
            text = f"What is in row {rows[row]}, column {columns[column]}?"
            questions.append(_of_page("table", text, digits[row][column], beside))
    else:
        letters = [ROWS[int(place)] for place in rng.permutation(len(ROWS))[:4]]
        numbers = [str(number) for number in rng.choice(np.arange(10, 100), size=4, replace=False).tolist()]
        lines = [[letter, *number, " "] for letter, number in zip(letters, numbers, strict=True)]
        questions = [
            _of_page("line", f"Which number is in line {letter}?", number, {*numbers})
            for letter, number in zip(letters, numbers, strict=True)
        ]
    return SeenQuestion.chosen(
        rng,
        questions,
        scene="/".join("".join(line) for line in lines),
        jitter=offsets,
        cells=[
            tuple(dict.fromkeys(name for name in (cell, line[0], head if is_table else " ") if name != " "))
            for line in lines
            for head, cell in zip(lines[0], line, strict=True)
        ],
        draw=lambda: _page(lines, offsets),
    )


def _of_units(kind: str, text: str, n_units: int, top: str) -> SceneQuestion:
    answer = str(n_units * AXES[top])
    wrong = {str(n_units * scale) for scale in AXES.values()} - {answer}
    return SceneQuestion(kind, text, answer, {"chart_axis_value_misread": sorted(wrong)})


def _of_page(kind: str, text: str, answer: str, beside: set[str]) -> SceneQuestion:
    """beside: what stands under the same headers, or in other lines."""
    others = beside - {answer}
    alike = {answer[:place] + LOOKS_LIKE[digit] + answer[place + 1 :] for place, digit in enumerate(answer)} - others
    mistakes = {"table_header_binding_error": sorted(others), "ocr_error": sorted(alike)}
    return SceneQuestion(kind, text, answer, {label: answers for label, answers in mistakes.items() if answers})


def _shapes(order: Sequence[str], colours: Sequence[str], sizes: Sequence[int], offsets: Sequence[int]) -> Pixels:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    half = SIDE // 2
    for place, (shape, colour) in enumerate(zip(order, colours, strict=True)):
        size = sizes[place]
        y, x = np.mgrid[0:size, 0:size] - (size - 1) / 2
        inside = {
            "circle": x**2 + y**2 <= (size / 2) ** 2,
            "square": np.ones((size, size), bool),
            "triangle": np.abs(x) <= (y + size / 2) / 2,
            "cross": (np.abs(x) <= size / 6) | (np.abs(y) <= size / 6),
        }[shape]
        top = place // 2 * half + min(1 + offsets[2 * place], half - size)
        column_start = place % 2 * half + min(1 + offsets[2 * place + 1], half - size)
        pixels[top : top + size, column_start : column_start + size][inside] = _COLOUR_INDEX[colour]
    return pixels


def _chart(colours: Sequence[str], units: Sequence[int], top: str, offsets: Sequence[int]) -> Pixels:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[:, CELL - 1] = _INK
    for tick in range(1, 6):
        pixels[SIDE - tick * UNIT, CELL - 3 : CELL] = _INK
    for place, character in enumerate(top):
        _write(pixels, character, offsets[3], 1 + 6 * place, wide=1)
    for place, (colour, unit) in enumerate(zip(colours, units, strict=True)):
        column_start = (place + 1) * CELL + 1 + offsets[place]
        pixels[SIDE - unit * UNIT :, column_start : column_start + 11] = _COLOUR_INDEX[colour]
    return pixels


def _page(lines: Sequence[Sequence[str]], offsets: Sequence[int]) -> Pixels:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    if lines[0][0] == " ":  # a table has rules
        pixels[CELL - 1, :] = pixels[:, CELL - 1] = _GREY
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            if character != " ":
                _write(pixels, character, row * CELL + offsets[0] // 2, column * CELL + 1 + offsets[1], wide=2)
    return pixels


def _write(pixels: Pixels, character: str, top: int, column_start: int, *, wide: int) -> None:
    glyph = np.array([int(bit) for bit in _GLYPHS[character]], bool).reshape(7, 5)
    glyph = glyph.repeat(2, axis=0).repeat(wide, axis=1)
    pixels[top : top + glyph.shape[0], column_start : column_start + glyph.shape[1]][glyph] = _INK


def _source(name: str, draw: Callable[[np.random.Generator], SeenQuestion]) -> Source[SeenQuestion]:
    return Source(
        name,
        draw,
        canonical=lambda question: question.scene,
        text=lambda question: f"{question.text}\0{question.scene}\0{question.jitter}",
    )


SHAPE_SOURCE = _source("mini_shapes", draw_shapes)
CHART_SOURCE = _source("mini_charts", draw_chart)
DOCUMENT_SOURCE = _source("mini_documents", draw_document)
SOURCES: Mapping[str, Source[SeenQuestion]] = MappingProxyType(
    {source.name: source for source in (SHAPE_SOURCE, CHART_SOURCE, DOCUMENT_SOURCE)}
)
"""By the names of the benchmarks."""


class _MiniPictures:
    """Questions about drawn pictures in four disjoint splits."""

    name: ClassVar[str]
    source: ClassVar[Source[SeenQuestion]]
    version = "1.0"
    primary_metric = "accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=8)
    attempts = 1
    takes_images = True
    preparation = PREPARATION

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [self._item(question, split, secret) for question in self.source.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The same number, or the same word."""
        return RelaxedAccuracyScorer(tolerance=0.0)

    def environment_version(self) -> str:
        """Name and version of the world, and how pictures are prepared."""
        return f"{QUESTION_WORLD}+pictures-{PREPARATION.name}"

    def _item(self, question: SeenQuestion, split: Split, secret: bytes | None) -> Item:
        picture = read_picture(question.picture(), self.name, PREPARATION)
        mistakes = {label: list(answers) for label, answers in question.mistakes.items()}
        return Item(
            id=self.source.item_id(question, split, secret),
            split=split,
            prompt=question.text,
            reference=question.answer,
            payload={
                "task_type": question.kind,
                PICTURES: to_payload([picture]),
                **({MISTAKES: mistakes} if mistakes else {}),
            },
        )


class MiniShapes(_MiniPictures):
    """Four coloured shapes."""

    name = "mini_shapes"
    source = SHAPE_SOURCE


class MiniCharts(_MiniPictures):
    """Bar charts with a labelled axis."""

    name = "mini_charts"
    source = CHART_SOURCE


class MiniDocuments(_MiniPictures):
    """Small tables and pages of four lines."""

    name = "mini_documents"
    source = DOCUMENT_SOURCE
