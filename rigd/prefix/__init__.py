"""Is the beginning of prompts the same every time, and what does it cost where it is not? Pure.

    prompt files, request bodies          sources.parse: text and JSON become prompts and bodies
        -> lint                           what in one of them will move: dates, ids, paths, order, seams
        -> sequence                       two or more: first difference, its cause, what can still hit
        -> kinds, common                  which requests belong together, and the beginning that they share

The engine's cache matches from the left in whole blocks, so one changed token costs everything behind it.
How to add a moving part: a row in `moving.PARTS`. How to add a cause of differences: a row in `differences.ADVICE`.
"""
