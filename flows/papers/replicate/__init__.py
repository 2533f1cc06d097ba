"""``fedscene replicate``: run the rows of a paper's table and compare them with the printed figures."""
