"""What a cluster was told is soon known everywhere in it: ask until it is."""

from __future__ import annotations

import threading


def eventually(ask, wanted, tries=600):
    """Ask, with a breath in between, until the answer is `wanted`; it has to be at the end."""
    breath = threading.Event()
    for _ in range(tries):
        if ask() == wanted or breath.wait(0.05):
            return
    assert ask() == wanted
