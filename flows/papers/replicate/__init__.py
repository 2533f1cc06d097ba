"""``fedscene replicate``: a table of a paper, its rows run here, ours beside the printed figures."""
