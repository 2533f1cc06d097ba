"""Rules that give each client, or each cluster of clients, a model of its own."""
