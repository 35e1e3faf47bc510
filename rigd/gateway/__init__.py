"""What stands between clients and the engine: a pass-through that streams, and those who watch it.

    client -> server (127.0.0.1) -> passthrough.PassThrough -> upstream.Upstream -> engine
                                          |
                                       tap.Tap: sees each exchange, and can neither change nor slow it

    capture: pass-through + recorder.Recorder + the client's own command -> what its requests share

How to add somebody who watches (accounting, limits that only count): a class with `tap.Tap`'s one method.
"""
