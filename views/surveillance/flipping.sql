-- Large orders near the best price that were cancelled whole soon after they came, when at once much was executed of the same
-- side, as by one who lets others join and then trades against them: a row for each of them. Of venues that tell orders.
-- Source: CFTC v. Oystacher and 3Red Trading (2015), on orders that were flipped to the other side of the market; Commission
-- Delegated Regulation (EU) 2016/522, annex II, section 1 (orders that give a false impression of supply or demand).
-- Cost: O(slice), 110 ns an event.
CREATE PARAMETER flip_value DEFAULT 100000 CHECK (flip_value >= 0); -- price times volume of an order, at least
CREATE PARAMETER flip_bps DEFAULT 5 CHECK (flip_bps >= 0); -- how far from the best price it is, at most
CREATE PARAMETER flip_life DEFAULT '2 seconds' CHECK (flip_life >= INTERVAL '0 seconds'); -- how long it rests, at most
CREATE PARAMETER flip_delay DEFAULT '20 milliseconds' CHECK (flip_delay >= INTERVAL '0 seconds'); -- how soon after it others are executed
CREATE PARAMETER flip_share DEFAULT 0.5 CHECK (flip_share > 0); -- executed then, of its volume, at least
CREATE VIEW flip_orders AS
SELECT venue, symbol, number, side, id, broker_id, price, volume, placed_at, ts AS cancelled_at,
       ts + INTERVAL :flip_delay AS until
FROM book_events
WHERE action = 'cancel' AND reason = 'order' AND id <> 0 AND remaining = 0 AND price * volume >= :flip_value
  AND ts - placed_at <= INTERVAL :flip_life
  AND ((side = 'bid' AND (bid - price) * 10000 <= :flip_bps * bid)
    OR (side = 'ask' AND (price - ask) * 10000 <= :flip_bps * ask));

CREATE VIEW flip_executed AS
SELECT o.venue, o.symbol, o.number, o.id, o.side, o.broker_id, o.price, o.volume, o.placed_at, o.cancelled_at,
       (SELECT SUM(e.volume) FROM executions_by_side e
        WHERE e.venue = o.venue AND e.symbol = o.symbol AND e.side = o.side AND e.ts >= o.cancelled_at
          AND e.ts <= o.until) AS executed
FROM flip_orders o;

CREATE VIEW flipping AS
SELECT venue, symbol, number, id, side, broker_id, price, volume, placed_at, cancelled_at, executed
FROM flip_executed WHERE executed >= :flip_share * volume;
