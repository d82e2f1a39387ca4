"""More views of the catalogue: relative ranks, quantiles and modes, by counts of rows in an order."""

RANKS = """
-- percent_ranks
SELECT symbol, price, PERCENT_RANK() OVER (PARTITION BY symbol ORDER BY price DESC) AS p, PERCENT_RANK()
    OVER (ORDER BY volume, price) AS q, CUME_DIST() OVER (PARTITION BY symbol ORDER BY price) AS c FROM bids
-- relative_ranks_of_nulls
SELECT a, b, PERCENT_RANK() OVER (PARTITION BY a ORDER BY c NULLS FIRST) AS p, CUME_DIST() OVER (PARTITION
    BY b ORDER BY a DESC NULLS LAST) AS c FROM r
-- relative_ranks_compared
SELECT symbol, price, volume FROM bids QUALIFY CUME_DIST() OVER (PARTITION BY symbol ORDER BY price) <= 0.5
-- tiles
SELECT symbol, price, v, NTILE(3) OVER (PARTITION BY symbol ORDER BY price DESC) AS t, NTILE(1) OVER
    (PARTITION BY symbol ORDER BY price) AS u, NTILE(9) OVER (PARTITION BY symbol ORDER BY price) AS w FROM
    (SELECT symbol, price, SUM(volume) AS v FROM bids GROUP BY symbol, price) d
-- tiles_summed
SELECT t, COUNT(*) AS n, SUM(v) AS s FROM (SELECT v, NTILE(2) OVER (ORDER BY price) AS t FROM (SELECT price,
    SUM(volume) AS v FROM bids GROUP BY price) d) e GROUP BY t
-- tiles_of_groups
SELECT symbol, price, SUM(volume) AS v, NTILE(2) OVER (PARTITION BY symbol ORDER BY price) AS t,
    CUME_DIST() OVER (ORDER BY SUM(volume)) AS c FROM bids GROUP BY symbol, price
"""
