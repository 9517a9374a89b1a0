"""The daemon: one process that moves the hands of the shards it leads."""
