"""Brings a host to the state that a playbook describes: a valid Ansible playbook, in a documented subset.

    playbook, inventory --language--> plays and tasks, every keyword, module and argument known, or an error with
                                      file, line and column before any task runs
    task + variables ---templating--> arguments
    arguments ----------run---------> frames to the helper: probe many tasks at once, apply what differs, probe again
    frames ------connection---------> one helper a host and user, over ssh (Fabric) or in this process
    helper ----------target---------> a module: arguments, probe, difference, apply (standard library alone)

How a task travels: `walk` takes it from the play; `prepare` fills in loop, conditions and arguments, which makes a
`Call` for each item; `ahead` sends that in one frame with the calls after it that do not depend on it; the helper
probes up to the first that differs and answers. No difference: the task is ok, and so are those read ahead. Else the
journal gets `started`, the helper applies and probes again (what still differs is a failure), the journal gets `done`
with the handlers that are owed, and what was read ahead is thrown away.

The core, in the order to read it: an hour, under 3,000 lines. The box's side first, since it knows of nobody else.

    target/contract.py          what a module is
    target/modules/hostname.py  a whole one
    target/engine.py            one task: probe, difference, apply, probe again
    target/frames.py            how requests and events stand on the wire
    target/helper.py            the process on the box that answers, and ends all it started when nobody listens
    language/model.py           what a playbook is once it is loaded
    run/engine.py               the whole run: plays, a thread for each host, the recap
    run/walk.py                 one host through one play: blocks, includes, handlers
    run/tasks.py                one task: all its items, what is kept, counted and told
    run/tries.py                one item: probe, apply, its conditions, tries, what is written down
    run/prepared.py             a task with all values filled in
    run/prepare.py              ... and how it gets them
    run/ahead.py                what may be probed before its turn
    run/calls.py                what is asked of a box, what it answers, and that it is gone
    run/boxes.py                calls as frames, over one helper a user; the box's lock
    run/journal.py              what survives a kill or a power cut

Then, as needed: variables (`run/state`, `run/play`, `run/scopes`, `run/known`, `templating/variables`); loading
(`language/load`, `language/tasks`, `language/roles`); the link (`connection/client`, `connection/start`,
`connection/ssh`); going on (`run/past`, `run/reboot`, `run/resume`); the way in (`run/start`, then
`rigd/cli/provision_run`). Everything else is one more module, fact, filter, lookup or keyword, each with how to add
one at the head of its package.

Limits: 64 tasks a frame, 10 hosts at once (`--forks`), 1 GiB a file; a helper that is silent for a minute is given
up, and gives up itself soon after; a task without a `timeout` has seven hours; 50 runs are kept; 3 boots a run. What
of Ansible is left out, and why, is told by `rigd provision left-out`; whoever needs that has `ansible-playbook`,
which runs the same files.

The daemon never imports this package: it runs provisioning as a process of its own and journals what that reports.
"""
