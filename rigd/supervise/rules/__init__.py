"""The failure rules: one class a `Rule`, grouped by what fails.

To add one: a `Rule` in a file below, and a sample with its expectation in `tests/data/logs/`.

    host.py       kernel log: Xids, lost cards, IOMMU, out-of-memory killer
    memory.py     weights, KV pool, graphs, what others hold on the card
    links.py      NCCL, shared memory, peer access, custom all-reduce
    container.py  container, driver, what the host allows a process
    arguments.py  what the parser, the model or the card refuses
    files.py      the model's files, access, disk, compile cache
    serving.py    deaths and hangs of an engine that served; the clients' own mistakes
    context.py    what is no failure: benign lines, wrappers, start-up stages, settings
    model.py      what a rule is

Rules are tried on a line in their order: the first that matches takes the line, so special rules stand before
general ones.

Rules without signatures are filled by numbers instead of words (`statistics.py` reads them from status lines).
Some failures are certain only on a live engine; here they are recognised where a log shows them:

    by the store's baseline   kv_pool_shrunk
    by counters               spec_accept_collapse, drafter_missing, spec_concurrency_cap, preempt_thrash,
                              stall_forever, stall_selfheal, slow_not_stuck, host_ram_leak
    by a canary on the text   custom_ar_corrupt, mtp_prefix_corruption
    by the host               host_reset_p2p (boot id), orphan_gpu_mem (NVML), gpu_lost (NVML)
"""

from rigd.supervise.rules import arguments, container, files, host, links, memory, serving
from rigd.supervise.rules.model import Rule

RULES: tuple[Rule, ...] = (
    *host.RULES,
    *memory.RULES,
    *links.RULES,
    *container.RULES,
    *arguments.RULES,
    *files.RULES,
    *serving.RULES,
)
