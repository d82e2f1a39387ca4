-- Spans of time in which orders at several prices of a side were cancelled soon after they came, while the other side traded
-- much more than this one: when, of which prices and how much, and from which row of book_events to which.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (layering and spoofing); FINRA, Regulatory
-- Notice 12-46.
-- Cost: O(slice), 471 ns an event.
CREATE PARAMETER layer_window DEFAULT '2 seconds'; -- how long a span is, and an order rests at most
CREATE PARAMETER layers DEFAULT 4; -- prices, at least
CREATE PARAMETER layer_value DEFAULT 200000; -- price times volume of all, at least
CREATE PARAMETER layer_lean DEFAULT 3; -- executed of the other side for each unit of this one, more than
CREATE VIEW short_lived AS
SELECT venue, symbol, side, TIME_BUCKET(INTERVAL :layer_window, ts) AS span, price, COUNT(*) AS orders,
       SUM(volume) AS volume, SUM(price * volume) AS value, MIN(number) AS first, MAX(number) AS last
FROM book_events
WHERE action = 'cancel' AND remaining = 0 AND reason <> 'snapshot' AND ts - placed_at <= INTERVAL :layer_window
GROUP BY venue, symbol, side, 4, price;

CREATE VIEW layers_cancelled AS
SELECT venue, symbol, side, span, COUNT(*) AS prices, SUM(orders) AS orders, SUM(volume) AS volume, SUM(value) AS value,
       MIN(first) AS first, MAX(last) AS last
FROM short_lived GROUP BY venue, symbol, side, span HAVING COUNT(*) >= :layers AND SUM(value) >= :layer_value;

CREATE VIEW executed_in_span AS
SELECT venue, symbol, TIME_BUCKET(INTERVAL :layer_window, ts) AS span,
       SUM(CASE WHEN side = 'bid' THEN volume ELSE 0 END) AS bids, SUM(CASE WHEN side = 'ask' THEN volume ELSE 0 END) AS asks
FROM book_events WHERE action = 'execute' GROUP BY venue, symbol, 3;

CREATE VIEW layering AS
SELECT l.venue, l.symbol, l.side, l.span, l.prices, l.orders, l.volume, l.value, l.first, l.last,
       CASE WHEN l.side = 'bid' THEN e.asks ELSE e.bids END AS executed
FROM layers_cancelled l JOIN executed_in_span e ON e.venue = l.venue AND e.symbol = l.symbol AND e.span = l.span
WHERE (l.side = 'bid' AND e.asks > :layer_lean * e.bids) OR (l.side = 'ask' AND e.bids > :layer_lean * e.asks);
