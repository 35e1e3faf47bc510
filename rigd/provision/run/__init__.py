"""Carries out a playbook: probes in batches, one change at a time, a journal before and after each, a recap.

    start -> engine -> walk -> tasks -> prepare (values) -> tries -> ahead -> boxes -> the helper

Events (`events`) go out as they come; `journal` writes what may be gone on with, `past` reads it again.
"""
