"""The protocol under a seeded scheduler: the model on long random walks, the real code in small."""
