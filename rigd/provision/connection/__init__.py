"""How a host is reached: one helper a host and user, over ssh or in this process, speaking frames.

    target (who, where) -> link.connect -> local: a thread of this process, or another user's by sudo
                                        -> ssh: opening (configuration, gateways, keys, hostkeys) -> a channel
    channel or process -> start (become the user, find Python, send the helper if it is not there) -> client.Helper

No prompt is ever matched, and nothing is left running on the host when the link ends, however it ends.
"""
