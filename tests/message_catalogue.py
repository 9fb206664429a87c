"""A message catalogue, as msgfmt writes it."""

from __future__ import annotations

import struct


def mo(pairs):
    """The bytes of a .mo file with these (English, German)."""
    items = sorted([("", "Content-Type: text/plain; charset=UTF-8\n"), *pairs])
    ids, strings = b"", b""
    spans = []
    for english, german in items:
        a, b = english.encode(), german.encode()
        spans.append((len(a), len(ids), len(b), len(strings)))
        ids, strings = ids + a + b"\0", strings + b + b"\0"
    start = 7 * 4 + 16 * len(items)
    keys = b"".join(struct.pack("<II", n, start + o) for n, o, _, _ in spans)
    values = b"".join(struct.pack("<II", n, start + len(ids) + o) for _, _, n, o in spans)
    head = struct.pack("<7I", 0x950412DE, 0, len(items), 28, 28 + 8 * len(items), 0, 0)
    return head + keys + values + ids + strings
