-- By broker, half the sum of products of the values of his bids, in pairs.
CREATE VIEW brokervariance AS
SELECT x.broker_id, SUM(x.volume * x.price * y.volume * y.price * 0.5) AS value
FROM bids x, bids y
WHERE x.broker_id = y.broker_id
GROUP BY x.broker_id;
