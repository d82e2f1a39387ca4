"""Orders through an execution client; the one that ships is an exchange simulated over the recorded market.

Clocks. A message has a time at the exchange, its exchange time where it has one, else its receive time; and
the run's time, `now`: receive time, else exchange time, never going back. Strategies see `now`.

The way of an order sent after a message at `now`:

1. It is checked at once by what the strategy knows: instrument, lot, tick, risk limits. What fails is
refused. 2. With no latency to the exchange it arrives at once, at `now`. Else it arrives at `now` + feed
   latency + order latency, and not before what the strategy sent to the same instrument earlier. It meets the
   book as it is before the first message of its instrument whose time at the exchange is later than its
   arrival: all that happened at or before the arrival has happened, nothing else.
3. From then on it rests, and messages of its instrument fill it; `queue` and `matching` say how.
4. What became of it, at the time t of its arrival or of a message at the exchange, is told at the end of the
   first message of the strategy's own whose `now` is t + response latency or later, and not before what was
   told earlier. A partitioned strategy's own messages are those of its symbol or venue; of others, all.
   The relations, `position` and callbacks change then, so that a strategy knows nothing before. Without any
   latency that is the message at hand.
5. Modifications and cancellations travel and arrive like orders.

So a decision at a message depends on nothing that comes after it, and what becomes of an order on nothing
that other symbols do; latencies that are drawn are functions of what they belong to (`latency`). An order
that waits for the next message of a quiet instrument is answered late, as nobody knows the book in between.

When a run ends, everything that happened is told, and what has not arrived is cancelled.
"""
