-- By broker, how much the value of his bids differs from that of his earlier ones.
CREATE VIEW brokerspread AS
SELECT x.broker_id, SUM(x.volume * x.price - y.volume * y.price) AS value
FROM bids x, bids y
WHERE x.broker_id = y.broker_id AND x.t > y.t
GROUP BY x.broker_id;
