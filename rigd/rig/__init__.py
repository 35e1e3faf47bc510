"""The rig file: what the operator wants, as one typed schema.

    YAML text -> load (line numbers, includes no secrets) -> schema.Rig -> validate -> everything else

`schema` is pure; `load` reads the file and points at the line of each mistake.
"""
