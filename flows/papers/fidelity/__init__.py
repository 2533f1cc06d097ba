"""The reproduction report: what a paper leaves open, what we chose, and which of its claims hold in our runs."""
