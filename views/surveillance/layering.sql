-- Spans of time in which large orders at several prices of a side, that had rested there together, were cancelled soon after they
-- came, and just after an order of the other side that was as new had been executed whole, with little else there meanwhile: when,
-- of which prices and how much, and from which row of book_events to which. All are of one broker where brokers are told.
-- Source: Commission Delegated Regulation (EU) 2016/522, annex II, section 1 (layering and spoofing); FINRA, Regulatory
-- Notice 12-46.
-- Cost: O(slice), 167 ns an event.
CREATE PARAMETER layer_window DEFAULT '500 milliseconds' CHECK (layer_window > INTERVAL '0 seconds'); -- in which all are cancelled
CREATE PARAMETER layer_life DEFAULT '2 seconds' CHECK (layer_life >= INTERVAL '0 seconds'); -- how long an order rests, at most
CREATE PARAMETER layer_order_value DEFAULT 40000 CHECK (layer_order_value >= 0); -- price times volume of an order, at least
CREATE PARAMETER layers DEFAULT 4 CHECK (layers >= 1); -- prices, at least
CREATE PARAMETER layer_value DEFAULT 160000 CHECK (layer_value >= 0); -- price times volume of all, at least
CREATE PARAMETER layer_ratio DEFAULT 4 CHECK (layer_ratio >= 0); -- volume of all for each unit executed of the other side meanwhile, at least
CREATE PARAMETER layer_leave DEFAULT '500 milliseconds' CHECK (layer_leave >= INTERVAL '0 seconds'); -- how soon after the execution the first is cancelled
CREATE VIEW layers_cancelled AS
SELECT venue, symbol, side, CASE WHEN side = 'bid' THEN 'ask' ELSE 'bid' END AS other_side, broker_id,
       TIME_BUCKET(INTERVAL :layer_window, ts) AS span, COUNT(DISTINCT price) AS prices, COUNT(*) AS orders,
       SUM(volume) AS volume, SUM(price * volume) AS value, MIN(placed_at) AS placed, MIN(ts) AS broken, MIN(number) AS first,
       MAX(number) AS last
FROM book_events
WHERE action = 'cancel' AND remaining = 0 AND reason <> 'snapshot' AND ts - placed_at <= INTERVAL :layer_life
  AND price * volume >= :layer_order_value
GROUP BY venue, symbol, side, broker_id, 6
HAVING COUNT(DISTINCT price) >= :layers AND SUM(price * volume) >= :layer_value AND MAX(placed_at) <= MIN(ts);

-- Which spans an execution can lie in follows from its time, so that it is compared with no others.
CREATE VIEW layers_executed AS
SELECT l.venue, l.symbol, l.side, l.broker_id, l.span, l.prices, l.orders, l.volume, l.value, l.placed, l.broken AS cancelled,
       l.first, l.last,
       (SELECT SUM(e.volume) FROM executions_by_side e
        WHERE e.venue = l.venue AND e.symbol = l.symbol AND e.side = l.other_side AND e.ts >= l.placed AND e.ts <= l.broken
          AND l.span <= e.ts + INTERVAL :layer_life AND l.span > e.ts - INTERVAL :layer_window) AS executed,
       (SELECT SUM(f.orders) FROM new_orders_filled f
        WHERE f.venue = l.venue AND f.symbol = l.symbol AND f.side = l.other_side AND f.broker_id = l.broker_id
          AND f.ts >= l.placed AND f.ts <= l.broken AND f.ts >= l.broken - INTERVAL :layer_leave
          AND l.span <= f.ts + INTERVAL :layer_leave AND l.span > f.ts - INTERVAL :layer_window) AS filled
FROM layers_cancelled l;

CREATE VIEW layering AS
SELECT venue, symbol, side, broker_id, span, prices, orders, volume, value, placed, cancelled, first, last, executed, filled
FROM layers_executed WHERE executed * :layer_ratio <= volume AND filled > 0;
