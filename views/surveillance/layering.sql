-- Spans of time in which large orders at several prices of a side, that had rested there together, were cancelled soon after they
-- came, and a little of the other side was executed before: when, of which prices and how much, and from which row of book_events
-- to which; a row for each time of execution.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (layering and spoofing); FINRA, Regulatory
-- Notice 12-46.
-- Cost: O(slice), 639 ns an event.
CREATE PARAMETER layer_window DEFAULT '500 milliseconds'; -- in which all are cancelled
CREATE PARAMETER layer_life DEFAULT '2 seconds'; -- how long an order rests, at most
CREATE PARAMETER layer_order_value DEFAULT 40000; -- price times volume of an order, at least
CREATE PARAMETER layers DEFAULT 4; -- prices, at least
CREATE PARAMETER layer_value DEFAULT 160000; -- price times volume of all, at least
CREATE PARAMETER layer_ratio DEFAULT 4; -- volume of all for each unit executed of the other side, at least
CREATE VIEW short_lived AS
SELECT venue, symbol, side, TIME_BUCKET(INTERVAL :layer_window, ts) AS span, price, COUNT(*) AS orders,
       SUM(volume) AS volume, SUM(price * volume) AS value, MIN(placed_at) AS placed, MAX(placed_at) AS complete,
       MIN(ts) AS broken, MIN(number) AS first, MAX(number) AS last
FROM book_events
WHERE action = 'cancel' AND remaining = 0 AND reason <> 'snapshot' AND ts - placed_at <= INTERVAL :layer_life
  AND price * volume >= :layer_order_value
GROUP BY venue, symbol, side, 4, price;

CREATE VIEW layers_cancelled AS
SELECT venue, symbol, side, CASE WHEN side = 'bid' THEN 'ask' ELSE 'bid' END AS other_side, span, COUNT(*) AS prices,
       SUM(orders) AS orders, SUM(volume) AS volume, SUM(value) AS value, MIN(placed) AS placed, MIN(broken) AS broken,
       MIN(first) AS first, MAX(last) AS last
FROM short_lived GROUP BY venue, symbol, side, span
HAVING COUNT(*) >= :layers AND SUM(value) >= :layer_value AND MAX(complete) <= MIN(broken);

CREATE VIEW layering AS
SELECT l.venue, l.symbol, l.side, l.span, l.prices, l.orders, l.volume, l.value, l.placed, l.broken AS cancelled, l.first, l.last,
       e.ts AS executed_at, e.volume AS executed
FROM layers_cancelled l JOIN executions_by_side e
  ON e.venue = l.venue AND e.symbol = l.symbol AND e.side = l.other_side AND e.ts >= l.placed AND e.ts <= l.broken
WHERE e.volume * :layer_ratio <= l.volume;
