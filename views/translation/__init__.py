"""From the bound query to the ring calculus: NULL, decimals, joins, windows and first rows."""
