"""An explicit-state model of the protocol: one task, one requeue row. Read docs/model.md first."""
