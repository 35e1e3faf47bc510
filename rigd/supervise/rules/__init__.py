"""The failure rules: one class a `Rule`, grouped by what fails.

To add one: a `Rule` in a file below, and a sample with its expectation in `tests/data/logs/`.

    memory.py   weights, KV pool, graphs, what others hold on the card
    launch.py   container, driver, arguments, files, network, limits
    links.py    NCCL, shared memory, peer access, custom all-reduce
    serving.py  deaths and hangs of an engine that served; the clients' own mistakes
    host.py     kernel log: Xids, lost cards, IOMMU, out-of-memory killer
    context.py  what is no failure: benign lines, wrappers, start-up stages, settings

Rules are tried on a line in their order: the first that matches takes the line, so special rules stand before
general ones.

Rules without signatures are filled by numbers instead of words (`statistics.py` reads them from status lines):
kv_pool_shrunk, spec_accept_collapse, drafter_missing, spec_concurrency_cap, preempt_thrash, stall_forever,
stall_selfheal, slow_not_stuck, host_ram_leak. Which of them need a live engine's metrics or answers for
certainty: kv_pool_shrunk (baseline in the store), drafter_missing and spec_accept_collapse (counters),
preempt_thrash (counter), host_ram_leak (resident memory), custom_ar_corrupt and mtp_prefix_corruption (canary on
the text), host_reset_p2p (boot id), orphan_gpu_mem (NVML). Here they are recognised where a log shows them.
"""

from rigd.supervise.rules import host, launch, links, memory, serving
from rigd.supervise.rules.model import Rule

RULES: tuple[Rule, ...] = (*host.RULES, *memory.RULES, *links.RULES, *launch.RULES, *serving.RULES)
