"""Brings a host to the state that a playbook describes: a valid Ansible playbook, in a documented subset.

    playbook, inventory --language--> plays and tasks, every keyword, module and argument known, or an error with
                                      file, line and column before any task runs
    task + variables ---templating--> arguments
    arguments ----------run---------> frames to the helper: probe many tasks at once, apply what differs, probe again
    frames ------connection---------> one helper a host and user, over ssh (Fabric) or in this process
    helper ----------target---------> a module: arguments, probe, difference, apply (standard library alone)

The daemon never imports this package: it runs provisioning as a process of its own and journals what that reports.
"""
