"""The demonstration: the whole engine on a temporary outbox, against a server that misbehaves as scripted."""
