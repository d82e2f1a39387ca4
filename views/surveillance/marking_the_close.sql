-- Days on which one side took most of what traded just before the close, and moved the price with it: which side, how much, how
-- far from the price before.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (marking the close).
-- Cost: O(log n), 7 ns an event.
CREATE PARAMETER close_at DEFAULT '20 hours' CHECK (close_at BETWEEN INTERVAL '0 seconds' AND INTERVAL '24 hours'); -- the close, since midnight UTC
CREATE PARAMETER close_window DEFAULT '1 minute' CHECK (close_window > INTERVAL '0 seconds'); -- before it
CREATE PARAMETER close_bps DEFAULT 20 CHECK (close_bps >= 0); -- how far the price goes, at least
CREATE PARAMETER close_sided DEFAULT 0.4 CHECK (close_sided BETWEEN 0 AND 1); -- share of the volume that is of one side, at least
CREATE VIEW closes AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL '24 hours', ts) AS day, COUNT(*) AS trades, SUM(volume) AS volume,
       SUM(CASE WHEN side = 'buy' THEN volume WHEN side = 'sell' THEN -volume ELSE 0 END) AS net,
       MIN(price) AS low, MAX(price) AS high, ARG_MAX(price, ts) AS close, MIN(id) AS first, MAX(id) AS last
FROM trades
WHERE ts - TIME_BUCKET(INTERVAL '24 hours', ts) + INTERVAL :close_window >= INTERVAL :close_at
  AND ts - TIME_BUCKET(INTERVAL '24 hours', ts) < INTERVAL :close_at
GROUP BY venue, symbol, 3;

CREATE VIEW marking_the_close AS
SELECT venue, symbol, day, CASE WHEN net > 0 THEN 'buy' ELSE 'sell' END AS side, trades, volume, net, low, high, close, first, last,
       (high - low) * 10000 / low AS move_bps
FROM closes
WHERE low > 0 AND ABS(net) >= :close_sided * volume AND (high - low) * 10000 >= :close_bps * low;
