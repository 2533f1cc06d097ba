"""Published figures of single cells: rows with images and protocols of their own, judged by bands and orderings."""
