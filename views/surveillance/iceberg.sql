-- Prices at which much more was executed in a span of time than was ever shown at an execution, by orders that came again and
-- again just after one: an order shows a part of itself and is filled up; where, when, how much, and from which row of book_events
-- to which.
-- Source: S. Frey, P. Sandas, "The impact of iceberg orders in limit order books" (2009); D. Zotikov, A. Antonov, "CME iceberg
-- order detection and prediction" (2019).
-- Cost: O(slice), 197 ns an event.
CREATE PARAMETER iceberg_window DEFAULT '10 seconds' CHECK (iceberg_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER iceberg_ratio DEFAULT 3 CHECK (iceberg_ratio >= 0); -- executed for each unit shown at most, at least
CREATE PARAMETER iceberg_fills DEFAULT 5 CHECK (iceberg_fills >= 1); -- executions, at least
CREATE PARAMETER iceberg_refills DEFAULT 2 CHECK (iceberg_refills >= 0); -- of them of orders that came just after the one before, at least
CREATE PARAMETER iceberg_delay DEFAULT '10 milliseconds' CHECK (iceberg_delay >= INTERVAL '0 seconds'); -- how soon that is
CREATE VIEW iceberg_executions AS
SELECT venue, symbol, side, price, ts, number, volume, level_volume + volume AS shown, placed_at,
       LAG(ts) OVER (PARTITION BY venue, symbol, side, price ORDER BY number) AS before
FROM book_events WHERE action = 'execute' AND reason <> 'late';

CREATE VIEW iceberg AS
SELECT venue, symbol, side, price, TIME_BUCKET(INTERVAL :iceberg_window, ts) AS span, COUNT(*) AS executions,
       COUNT(*) FILTER (WHERE placed_at >= before AND placed_at - before <= INTERVAL :iceberg_delay) AS refills,
       SUM(volume) AS executed, MAX(shown) AS shown, MIN(number) AS first, MAX(number) AS last
FROM iceberg_executions GROUP BY venue, symbol, side, price, 5
HAVING COUNT(*) >= :iceberg_fills AND SUM(volume) >= :iceberg_ratio * MAX(shown)
   AND COUNT(*) FILTER (WHERE placed_at >= before AND placed_at - before <= INTERVAL :iceberg_delay) >= :iceberg_refills;
