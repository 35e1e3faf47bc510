"""Jinja2 as playbooks use it: variables by precedence, Ansible's common filters, tests and lookups, strict booleans.

    Layers (play, role, task, facts, results, ...) -> Variables: a mapping that fills in a value when it is asked for
    render(value, variables)        any value of a playbook -> plain data
    holds(condition, variables)     an expression           -> true or false, else an error
    files.render_file(text, ...)    a file of templates     -> text
    syntax.template_fault(text), syntax.variables_used(text)   what can be known without a host

Only what stands in files of the playbook is a template. Results, facts and the items of a loop (`Plain` mappings) are
never filled in again, so what a box answers cannot run here.
"""
