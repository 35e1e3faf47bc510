"""How a host is reached: one helper a host and user, over ssh or in this process, speaking frames."""
