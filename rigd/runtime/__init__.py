"""Runtimes: how an engine is created, found again, watched and ended. One protocol, two of them.

    base      the protocol and its frozen values
    docker    containers through the Docker SDK
    process   a bare `vllm serve` in its own session
    tree      process trees: members, orphans, TERM then KILL
    gates     what must hold before a start
    startlog  one log folder a start, with size limits

A runtime makes no choice: it is handed a `LaunchSpec` and says what it saw.
"""
