-- What docs/grafana/dashboard.json shows beside `touch`: bars of the last hour, one for each minute.
CREATE VIEW bars AS
SELECT symbol, TIME_BUCKET(INTERVAL '1 minute', ts) AS minute,
       FIRST(price ORDER BY ts, id) AS open, MAX(price) AS high, MIN(price) AS low,
       LAST(price ORDER BY ts, id) AS close, SUM(volume) AS volume
FROM trades
WHERE ts > NOW() - INTERVAL '1 hour'
GROUP BY ALL;
