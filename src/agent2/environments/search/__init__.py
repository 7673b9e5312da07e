"""A world of documents: a model searches, opens pages, looks for words in them, and answers with citations.

`corpus` stores the documents and searches them by BM25, in memory or memory-mapped from disk; `world` is the
environment.
"""
