"""From files to plays and tasks: everything a playbook can get wrong without a host is found here, with its place.

    load_playbook(path)   YAML (`source`) -> plays -> blocks and tasks (`tasks`), roles (`roles`) in their places,
                          each with what is handed down to it (`scope`), arguments checked (`arguments`)
    load_tasks, load_role what a dynamic include brings during the run; checked beforehand if its name is known
    check_arguments       a task's arguments once they are filled in: converted, with defaults
    inventory             hosts, groups, their variables, patterns

How to add a keyword: one line in `keywords`, one in `scope` or `tasks`. What is left out stands in `left_out`.
"""
