"""Refer to a file that somebody uploaded to the provider's account."""

from red_team.providers import body_moves, keeps

AIM = "content that is in no record and no reservation"
DEFENCE = "references to what the provider keeps are refused anywhere in a body"

PART = b'{"type":"file","file":{"file_id":"file-1"}}'
attempt, control = body_moves(b'{"messages":[{"role":"user","content":[' + PART + b"]}]}", keeps("file_id"))
