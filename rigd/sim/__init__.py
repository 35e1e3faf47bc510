"""The engine double: vLLM's surface without a GPU, as real processes with real consequences.

    arguments -> API server (server, answers, metrics) <-socket-> engine core (core, scheduler, cache, timing)
                                                                      <-pipes-> one worker for each rank

The API server forks the core, the core forks the workers, and every step of the core asks every worker. So a
killed or stopped process does here what it does in vLLM, and no branch has to pretend it. `faults` adds the
rest, `lines`, `startup` and `signatures` write the log that vLLM would write. The contract tests run against
this and against the real engine.
"""
