-- Prices at which much more was executed in a span of time than was ever shown at once, in several executions: an order shows a
-- part of itself and is filled up; where, when, how much, and from which row of book_events to which.
-- Source: S. Frey, P. Sandas, "The impact of iceberg orders in limit order books" (2009); D. Zotikov, A. Antonov, "CME iceberg
-- order detection and prediction" (2019).
-- Cost: O(log n), 420 ns an event.
CREATE PARAMETER iceberg_window DEFAULT '10 seconds' CHECK (iceberg_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER iceberg_ratio DEFAULT 3 CHECK (iceberg_ratio >= 0); -- executed for each unit shown at most, at least
CREATE PARAMETER iceberg_fills DEFAULT 5 CHECK (iceberg_fills >= 1); -- executions, at least
CREATE VIEW iceberg AS
SELECT venue, symbol, side, price, TIME_BUCKET(INTERVAL :iceberg_window, ts) AS span,
       COUNT(*) FILTER (WHERE action = 'execute') AS executions,
       SUM(CASE WHEN action = 'execute' THEN volume ELSE 0 END) AS executed,
       MAX(CASE WHEN action = 'execute' THEN level_volume + volume ELSE level_volume END) AS shown,
       MIN(number) AS first, MAX(number) AS last
FROM book_events WHERE reason <> 'snapshot' AND reason <> 'late' AND action <> 'clear' GROUP BY venue, symbol, side, price, 5
HAVING COUNT(*) FILTER (WHERE action = 'execute') >= :iceberg_fills
   AND SUM(CASE WHEN action = 'execute' THEN volume ELSE 0 END)
       >= :iceberg_ratio * MAX(CASE WHEN action = 'execute' THEN level_volume + volume ELSE level_volume END);
