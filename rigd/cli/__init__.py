"""The command line: thin commands over `rigd.client`, one file a noun.

    main.main -> status.quick       `rigd status`: standard library only, because it is typed all day
              -> app.make_app       everything else: typer; commands of other parts are imported when named

stdout carries the result (with `--json` exactly one document, or one a line where it goes on), stderr
the rest.
"""
