"""Worlds that items are played in; `question` asks once and takes one answer."""
