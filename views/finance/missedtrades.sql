-- By bidding broker, the difference of value between the asks and bids within a quarter of their volume.
CREATE VIEW missedtrades AS
SELECT b.broker_id, SUM(a.price * a.volume - b.price * b.volume) AS value
FROM bids b, asks a
WHERE 0.25 * (SELECT SUM(a1.volume) FROM asks a1)
    > (SELECT COALESCE(SUM(a2.volume), 0) FROM asks a2 WHERE a2.price > a.price)
    AND 0.25 * (SELECT SUM(b1.volume) FROM bids b1)
    > (SELECT COALESCE(SUM(b2.volume), 0) FROM bids b2 WHERE b2.price > b.price)
GROUP BY b.broker_id;
