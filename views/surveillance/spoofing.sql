-- Large orders that were cancelled whole soon after they came, near the best price, and just after an order of the other side that
-- was as new had been executed whole, with little else there meanwhile: a row for each of them. Of venues that tell orders; both
-- are of one broker where brokers are told.
-- Source: Dodd-Frank Act, section 747 (bidding or offering with the intent to cancel before execution); CFTC, In re Panther Energy
-- Trading and Coscia (2013); ESMA, MAR guidance, and Commission Delegated Regulation (EU) 2016/522, annex II.
-- Cost: O(slice), 153 ns an event.
CREATE PARAMETER spoof_value DEFAULT 100000 CHECK (spoof_value >= 0); -- price times volume of an order, at least
CREATE PARAMETER spoof_share DEFAULT 0.5 CHECK (spoof_share BETWEEN 0 AND 1); -- of the volume of its level that an order is, at least
CREATE PARAMETER spoof_ratio DEFAULT 4 CHECK (spoof_ratio >= 0); -- its volume for each unit executed of the other side meanwhile, at least
CREATE PARAMETER spoof_bps DEFAULT 10 CHECK (spoof_bps >= 0); -- how far from the best price it is, at most
CREATE PARAMETER spoof_life DEFAULT '2 seconds' CHECK (spoof_life >= INTERVAL '0 seconds'); -- how long it rests, at most
CREATE PARAMETER spoof_leave DEFAULT '500 milliseconds' CHECK (spoof_leave >= INTERVAL '0 seconds'); -- how soon after the execution it is cancelled
CREATE VIEW spoof_orders AS
SELECT venue, symbol, number, side, id, broker_id, price, volume, placed_at, ts AS cancelled_at,
       GREATEST(placed_at, ts - INTERVAL :spoof_leave) AS since, CASE WHEN side = 'bid' THEN 'ask' ELSE 'bid' END AS other_side
FROM book_events
WHERE action = 'cancel' AND reason = 'order' AND id <> 0 AND remaining = 0 AND price * volume >= :spoof_value
  AND volume >= :spoof_share * (level_volume + volume) AND ts - placed_at <= INTERVAL :spoof_life
  AND ((side = 'bid' AND (bid - price) * 10000 <= :spoof_bps * bid)
    OR (side = 'ask' AND (price - ask) * 10000 <= :spoof_bps * ask));

CREATE VIEW spoof_executed AS
SELECT s.venue, s.symbol, s.number, s.id, s.side, s.broker_id, s.price, s.volume, s.placed_at, s.cancelled_at,
       (SELECT SUM(e.volume) FROM executions_by_side e
        WHERE e.venue = s.venue AND e.symbol = s.symbol AND e.side = s.other_side AND e.ts >= s.placed_at
          AND e.ts <= s.cancelled_at) AS executed,
       (SELECT SUM(f.orders) FROM new_orders_filled f
        WHERE f.venue = s.venue AND f.symbol = s.symbol AND f.side = s.other_side AND f.broker_id = s.broker_id
          AND f.ts >= s.since AND f.ts <= s.cancelled_at) AS filled
FROM spoof_orders s;

CREATE VIEW spoofing AS
SELECT venue, symbol, number, id, side, broker_id, price, volume, placed_at, cancelled_at, executed, filled
FROM spoof_executed WHERE executed * :spoof_ratio <= volume AND filled > 0;
