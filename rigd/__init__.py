"""rigd: keep a home GPU box serving.

    rig file -> engine spec -> runtime (docker, process) -> supervise (observe, decide, act) -> API -> CLI

`docs` live beside the code: each package's docstring draws its own flow.
"""

__version__ = "0.1.0"
