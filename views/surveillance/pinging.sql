-- Spans of time in which small orders at the best price or better were cancelled within milliseconds, again and again:
-- somebody looks for hidden orders; when, how many, and from which row of book_events to which. Of venues that tell orders.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (entering small orders to ascertain hidden ones).
-- Cost: O(log n), 107 ns an event.
CREATE PARAMETER ping_life DEFAULT '5 milliseconds' CHECK (ping_life >= INTERVAL '0 seconds'); -- how long an order rests, at most
CREATE PARAMETER ping_value DEFAULT 20000 CHECK (ping_value >= 0); -- price times volume of an order, at most
CREATE PARAMETER pings DEFAULT 20 CHECK (pings >= 1); -- of them in a span, at least
CREATE PARAMETER ping_window DEFAULT '1 second' CHECK (ping_window > INTERVAL '0 seconds'); -- how long a span is
CREATE VIEW pinging AS
SELECT venue, symbol, side, TIME_BUCKET(INTERVAL :ping_window, ts) AS span, COUNT(*) AS orders, SUM(volume) AS volume,
       MIN(price) AS lowest, MAX(price) AS highest, MIN(number) AS first, MAX(number) AS last
FROM book_events
WHERE action = 'cancel' AND reason = 'order' AND id <> 0 AND remaining = 0 AND ts - placed_at <= INTERVAL :ping_life
  AND price * volume <= :ping_value AND ((side = 'bid' AND price >= bid) OR (side = 'ask' AND price <= ask))
GROUP BY venue, symbol, side, 4 HAVING COUNT(*) >= :pings;
