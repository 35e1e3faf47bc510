"""What to launch: a rig's engine section becomes argv, environment, mounts and labels. Pure.

schema.Engine -> versions (what this vLLM reads) -> arguments (argv) -> spec.LaunchSpec (with its digest)
"""

from importlib import resources


def parser_probe_source() -> str:
    """Return the script that the engine's own Python runs to ask vLLM's parser; see `parser_probe`."""
    return resources.files("rigd.engine").joinpath("parser_probe.py").read_text(encoding="utf-8")
