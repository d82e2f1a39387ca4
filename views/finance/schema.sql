-- The streams of the finance workload of the DBToaster papers. Prices are in ticks and volumes in lots, so
-- that every sum, of products of two rows too, is exact in 128 bits.
CREATE STREAM bids (
    t         BIGINT NOT NULL,
    id        BIGINT NOT NULL,
    broker_id INTEGER NOT NULL CHECK (broker_id BETWEEN 0 AND 1000),
    volume    INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 100000),
    price     INTEGER NOT NULL CHECK (price BETWEEN 0 AND 100000)
) WITH (max_rows = 100000);
CREATE STREAM asks (
    t         BIGINT NOT NULL,
    id        BIGINT NOT NULL,
    broker_id INTEGER NOT NULL CHECK (broker_id BETWEEN 0 AND 1000),
    volume    INTEGER NOT NULL CHECK (volume BETWEEN 0 AND 100000),
    price     INTEGER NOT NULL CHECK (price BETWEEN 0 AND 100000)
) WITH (max_rows = 100000);
