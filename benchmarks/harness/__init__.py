"""The harness: runs contestants side by side, keeps the results, writes the page."""
