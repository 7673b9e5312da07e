"""A text store: a catalogue with a search index, pages, and an order that ends a visit."""
