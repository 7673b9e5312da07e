"""WebShop's official files, small: products, attributes and instructions of our own in the published layout."""

import json
from pathlib import Path

import numpy as np

from agent2.benchmarks.shop import GeneratedProducts, draw_shopping_task

N_INSTRUCTIONS = 1700


def official_product(product, **changes):
    """A product as the published file has it; what nothing reads is left out."""
    fields = {
        "asin": product.id,
        "name": product.title,
        "query": f" {product.query.title()} ",
        "category": product.category.split(" › ")[0],
        "product_category": product.category,
        "full_description": product.description,
        "small_description": list(product.features),
        "pricing": f"${product.price:.2f}",
        "customization_options": {
            axis.title(): [{"value": f" {value.upper()}", "image": None} for value in values]
            for axis, values in product.options.items()
        },
        "images": ["https://example.invalid/none.jpg"],
        "brand": "nobody",
    }
    return fields | changes


def write_webshop(folder: Path, n_products: int = 60, n_instructions: int = N_INSTRUCTIONS) -> Path:
    """The three files; every product has other products' neighbours in its aisle, each instruction fits one."""
    folder.mkdir(parents=True)
    catalogue = GeneratedProducts(n_products)
    products = [catalogue[number] for number in range(n_products)]
    rng, instructions_of, texts = np.random.default_rng(0), {}, set()
    while len(texts) < n_instructions:
        task = draw_shopping_task(rng, catalogue)
        text = task.text.partition(", and price lower than")[0]
        if text in texts:
            continue
        texts.add(text)
        entry = {
            "asin": task.product.id,
            "instruction": f"{text}.",
            "instruction_attributes": list(task.attributes),
            "instruction_options": [task.color, task.value],
        }
        instructions_of.setdefault(task.product.id, []).append(entry)
    instructions_of[products[0].id].append(
        {"instruction": "anything", "instruction_attributes": [], "instruction_options": []}
    )
    attributes = {product.id: {"attributes": list(product.attributes)} for product in products}
    write(folder / "items_shuffle.json", [official_product(product) for product in products])
    write(folder / "items_ins_v2.json", attributes)
    write(folder / "items_human_ins.json", instructions_of)
    return folder


def write(path: Path, value) -> None:
    """As JSON."""
    path.write_text(json.dumps(value), encoding="utf-8")
