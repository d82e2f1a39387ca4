-- The relations every program has unless it declares its own of the same name.
-- Prices and volumes have eight decimal places for every venue; ts is the row's own last change.
CREATE STREAM bids (
    ts        TIMESTAMP      NOT NULL,
    venue     TEXT           NOT NULL,
    symbol    TEXT           NOT NULL,
    id        BIGINT         NOT NULL,
    broker_id INTEGER        NOT NULL,
    volume    DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price     DECIMAL(18, 8) NOT NULL
);

CREATE STREAM asks (
    ts        TIMESTAMP      NOT NULL,
    venue     TEXT           NOT NULL,
    symbol    TEXT           NOT NULL,
    id        BIGINT         NOT NULL,
    broker_id INTEGER        NOT NULL,
    volume    DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price     DECIMAL(18, 8) NOT NULL
);

CREATE STREAM trades (
    ts     TIMESTAMP      NOT NULL,
    venue  TEXT           NOT NULL,
    symbol TEXT           NOT NULL,
    id     BIGINT         NOT NULL,
    volume DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price  DECIMAL(18, 8) NOT NULL,
    side   TEXT           NOT NULL
);
