"""The fidelity report: what a paper leaves open and what we chose, and which of its claims hold in our runs."""
