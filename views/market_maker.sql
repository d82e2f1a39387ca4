-- Quotes both sides of each book, post-only, at the touch or behind it, while what is held allows it.
-- Source: M. Avellaneda, S. Stoikov, "High-frequency trading in a limit order book" (Quantitative Finance, 2008): quotes
-- lie around a price that falls with what is held. It is the micro-price of views/micro_price.sql, less `quote_skew`
-- for each `quote_volume` held; quotes are `quote_half_spread` away from it. Both are shares of the price.
CREATE STRATEGY market_maker WITH (min_life = '50ms', refill) AS
WITH prices AS (
    SELECT m.venue, m.symbol, m.bid, m.ask, COALESCE(p.volume, 0) AS held,
           m.micro * (1 - :quote_skew * COALESCE(p.volume, 0) / :quote_volume) AS middle
    FROM micro_price m LEFT JOIN positions p ON p.venue = m.venue AND p.symbol = m.symbol
)
SELECT venue, symbol, 'buy' AS side, LEAST(bid, middle * (1 - :quote_half_spread)) AS price,
       :quote_volume AS volume, 'post only' AS kind
FROM prices WHERE held + :quote_volume <= :quote_most
UNION ALL
SELECT venue, symbol, 'sell' AS side, GREATEST(ask, middle * (1 + :quote_half_spread)) AS price,
       :quote_volume AS volume, 'post only' AS kind
FROM prices WHERE :quote_volume - held <= :quote_most;
