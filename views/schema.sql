-- The relations every program has unless it declares its own of the same name.
-- Prices and volumes have eight decimal places for every venue; ts is the row's own last change. Rows of books
-- by level have the id 0, so that the price is part of the key.
CREATE STREAM bids (
    ts        TIMESTAMP      NOT NULL,
    venue     TEXT           NOT NULL,
    symbol    TEXT           NOT NULL,
    id        BIGINT         NOT NULL,
    broker_id INTEGER        NOT NULL,
    volume    DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price     DECIMAL(18, 8) NOT NULL,
    PRIMARY KEY (venue, symbol, id, price)
);

CREATE STREAM asks (
    ts        TIMESTAMP      NOT NULL,
    venue     TEXT           NOT NULL,
    symbol    TEXT           NOT NULL,
    id        BIGINT         NOT NULL,
    broker_id INTEGER        NOT NULL,
    volume    DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price     DECIMAL(18, 8) NOT NULL,
    PRIMARY KEY (venue, symbol, id, price)
);

-- Where views have to tell rows apart, a number that counts those of a book from 1 comes after the columns.
CREATE STREAM trades (
    ts     TIMESTAMP      NOT NULL,
    venue  TEXT           NOT NULL,
    symbol TEXT           NOT NULL,
    id     BIGINT         NOT NULL,
    volume DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price  DECIMAL(18, 8) NOT NULL,
    side   TEXT           NOT NULL
);

-- What strategies ask for and get. An order's row changes with it; ts is the event clock at its last change.
-- (strategy, id) is an order's key, status one of sent, resting, filled, cancelled, refused; price is NULL for a
-- market order, venue '' and volume 0 where a refused order named none that there is.
CREATE STREAM orders (
    ts       TIMESTAMP      NOT NULL,
    strategy TEXT           NOT NULL,
    id       BIGINT         NOT NULL,
    venue    TEXT           NOT NULL,
    symbol   TEXT           NOT NULL,
    side     TEXT           NOT NULL,
    volume   DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price    DECIMAL(18, 8),
    filled   DECIMAL(18, 8) NOT NULL CHECK (filled >= 0),
    status   TEXT           NOT NULL,
    reason   TEXT
);

-- fee is in the quote currency, below 0 a rebate; liquidity is maker where the order rested, else taker.
CREATE STREAM fills (
    ts        TIMESTAMP      NOT NULL,
    strategy  TEXT           NOT NULL,
    order_id  BIGINT         NOT NULL,
    venue     TEXT           NOT NULL,
    symbol    TEXT           NOT NULL,
    side      TEXT           NOT NULL,
    volume    DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price     DECIMAL(18, 8) NOT NULL,
    fee       DECIMAL(18, 8) NOT NULL,
    liquidity TEXT           NOT NULL
);

-- Whether what is shown of a book is the exchange's: state is syncing, valid or stale, reason why. A book has one
-- row, from the first that is heard of it.
CREATE STREAM book_states (
    ts     TIMESTAMP NOT NULL,
    venue  TEXT      NOT NULL,
    symbol TEXT      NOT NULL,
    state  TEXT      NOT NULL,
    reason TEXT      NOT NULL
);

-- What NOW() reads: one row, the last tick of the clock. The engine alone changes it.
CREATE STREAM clock (now TIMESTAMP NOT NULL) WITH (max_rows = 1);

-- What exchanges tell of contracts. Rows only come: each is what was told at ts, and the last of a symbol is what
-- holds. rate is what longs pay to shorts, as a fraction of the position's value; next_time is when it is paid
-- next, and both are for the period that ends then.
CREATE STREAM funding (
    ts        TIMESTAMP       NOT NULL,
    venue     TEXT            NOT NULL,
    symbol    TEXT            NOT NULL,
    rate      DECIMAL(18, 12) NOT NULL,
    next_time TIMESTAMP
);

-- price is what positions are valued by, index_price what it is made of where that is told; both are rounded to
-- eight decimal places where the exchange computes more.
CREATE STREAM mark_prices (
    ts          TIMESTAMP      NOT NULL,
    venue       TEXT           NOT NULL,
    symbol      TEXT           NOT NULL,
    price       DECIMAL(18, 8) NOT NULL,
    index_price DECIMAL(18, 8)
);

-- volume counts what the volumes of the venue's books and trades count.
CREATE STREAM open_interest (
    ts     TIMESTAMP      NOT NULL,
    venue  TEXT           NOT NULL,
    symbol TEXT           NOT NULL,
    volume DECIMAL(18, 8) NOT NULL CHECK (volume >= 0)
);

-- An order by which the exchange closes a position: side is the order's, sell where a long is closed. id is 0 where
-- none is told.
CREATE STREAM liquidations (
    ts     TIMESTAMP      NOT NULL,
    venue  TEXT           NOT NULL,
    symbol TEXT           NOT NULL,
    id     BIGINT         NOT NULL,
    volume DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    price  DECIMAL(18, 8) NOT NULL,
    side   TEXT           NOT NULL
);

-- What venues list of what they trade. A row is there from the first that is heard of its book, and changes when
-- the venue tells another tick or lot: orders must be multiples of them. contract is linear, inverse, multiplier or
-- unknown: volume * multiplier is an amount of the base, of inverse contracts of the quote currency. kind is spot,
-- perpetual, future, option, spread or share; profit is paid in settlement; expiry, strike and option_type (call or
-- put) are those of what has them. NULL is what the source does not tell.
CREATE STREAM instruments (
    ts            TIMESTAMP      NOT NULL,
    venue         TEXT           NOT NULL,
    symbol        TEXT           NOT NULL,
    native_symbol TEXT           NOT NULL,
    contract      TEXT           NOT NULL,
    tick          DECIMAL(18, 8) NOT NULL CHECK (tick >= 0),
    lot           DECIMAL(18, 8) NOT NULL CHECK (lot >= 0),
    kind          TEXT,
    settlement    TEXT,
    multiplier    DECIMAL(18, 8) CHECK (multiplier >= 0),
    expiry        TIMESTAMP,
    strike        DECIMAL(18, 8) CHECK (strike >= 0),
    option_type   TEXT,
    PRIMARY KEY (venue, symbol)
);

-- What strategies hold of each instrument that they have traded, as far as they were told: volume is below 0 where
-- one is short, fees are all that it has paid, in the quote currency.
CREATE STREAM positions (
    strategy TEXT           NOT NULL,
    venue    TEXT           NOT NULL,
    symbol   TEXT           NOT NULL,
    volume   DECIMAL(18, 8) NOT NULL,
    fees     DECIMAL(18, 8) NOT NULL,
    PRIMARY KEY (strategy, venue, symbol)
);

-- The touch of each book as a history: a row for each message that left another best bid or ask, or another volume
-- there, than the row before. Rows only come; id numbers those of a book from 1, and ts is that of the book's change.
-- A side without orders has NULL for its price and volume, and mid, their mean, is then NULL too.
CREATE STREAM quotes (
    ts         TIMESTAMP      NOT NULL,
    venue      TEXT           NOT NULL,
    symbol     TEXT           NOT NULL,
    id         BIGINT         NOT NULL CHECK (id >= 1),
    bid        DECIMAL(18, 8),
    bid_volume DECIMAL(18, 8) CHECK (bid_volume >= 0),
    ask        DECIMAL(18, 8),
    ask_volume DECIMAL(18, 8) CHECK (ask_volume >= 0),
    mid        DOUBLE,
    PRIMARY KEY (venue, symbol, id)
);

-- What happens to the orders of each book, in order. Rows only come; number counts those of a book from 1. side is bid or
-- ask. action is
--   add: an order comes, or a level gets more; volume is what comes.
--   cancel, execute: volume of an order or a level leaves, and remaining is what is left; an order with nothing left is gone.
--   modify, replace: an order has remaining in place of volume, at its price (modify) or another than old_price. It keeps its
--     place in the queue at the same price with no more volume. With nothing remaining another order has taken its place.
--   clear: it leaves with its side, as at a gap or a halt.
-- reason is order where the venue says so of the order id, snapshot where that was a snapshot. All else is inferred, of books
-- by level (id 0) and of venues that never tell an execution: level is what the volume of a level tells; trade is of what
-- left when a trade of the other side at its price had come within a second, one for one; late is a trade within a second
-- after, of what a row before it told as cancelled (books by level only).
-- placed_at is when the order came, or the level; level_volume_ahead what stands before it in the queue of its price after an
-- add, modify or replace, and before a cancel or execute; level_volume the level's volume after it. Both are NULL where
-- nobody knows. bid and ask are the best prices before.
CREATE STREAM book_events (
    ts                 TIMESTAMP      NOT NULL,
    venue              TEXT           NOT NULL,
    symbol             TEXT           NOT NULL,
    number             BIGINT         NOT NULL CHECK (number >= 1),
    side               TEXT           NOT NULL,
    id                 BIGINT         NOT NULL,
    broker_id          INTEGER        NOT NULL,
    action             TEXT           NOT NULL,
    reason             TEXT           NOT NULL,
    price              DECIMAL(18, 8) NOT NULL,
    volume             DECIMAL(18, 8) NOT NULL CHECK (volume >= 0),
    remaining          DECIMAL(18, 8) NOT NULL CHECK (remaining >= 0),
    placed_at          TIMESTAMP      NOT NULL,
    old_price          DECIMAL(18, 8),
    level_volume_ahead DECIMAL(18, 8) CHECK (level_volume_ahead >= 0),
    level_volume       DECIMAL(18, 8) CHECK (level_volume >= 0),
    bid                DECIMAL(18, 8),
    ask                DECIMAL(18, 8),
    PRIMARY KEY (venue, symbol, number)
);
