"""Jinja2 as playbooks use it: variables by precedence, the common filters, tests and lookups, strict booleans."""
