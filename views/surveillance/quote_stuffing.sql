-- Spans of time with very many events of orders of which next to nothing trades: when, how many, and from which row of
-- book_events to which.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (quote stuffing); SEC and CFTC, "Findings
-- regarding the market events of May 6, 2010".
-- Cost: O(log n), 250 ns an event.
CREATE PARAMETER stuffing_window DEFAULT '100 milliseconds' CHECK (stuffing_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER stuffing_events DEFAULT 1000 CHECK (stuffing_events >= 1); -- events in it, at least
CREATE PARAMETER stuffing_trades DEFAULT 0.01 CHECK (stuffing_trades BETWEEN 0 AND 1); -- share of them that are executions, at most
CREATE VIEW quote_stuffing AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :stuffing_window, ts) AS span, COUNT(*) AS events,
       COUNT(*) FILTER (WHERE action = 'cancel') AS cancels, COUNT(*) FILTER (WHERE action = 'execute') AS executions,
       MIN(number) AS first, MAX(number) AS last
FROM book_events WHERE reason <> 'snapshot' AND action <> 'clear' GROUP BY venue, symbol, 3
HAVING COUNT(*) >= :stuffing_events
   AND COUNT(*) FILTER (WHERE action = 'execute') <= :stuffing_trades * COUNT(*);
