"""Good frames and answers of every exchange, few and small: what hostile ones are made from.

A connection that gets `frames` in order, and `answer` for each GET, has a valid book.
"""

# ruff: noqa: UP031 (braces of JSON would all stand twice)
from dataclasses import dataclass
from zlib import crc32

from session_support import instrument

from orderbook.market.instruments import Instrument

_ISO = "2026-08-09T21:05:48.210883Z"
_ID = "d50ec984-77a8-460a-b958-66f114b0de9b"
_OTHER_ID = "ac928c66-ca53-498f-9c13-a110027a60e8"


@dataclass(frozen=True)
class Sample:
    """`more`: frames that a valid book takes. `answer`: with a snapshot."""

    instrument: Instrument
    frames: tuple[str, ...]
    answer: str = "{}"
    more: tuple[str, ...] = ()


def _signed(text: str) -> int:
    number = crc32(text.encode())
    return number - 2**32 if number >= 2**31 else number


def _binance(venue: str, previous: str, trade: str) -> Sample:
    depth = (
        '{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","E":1723161255308,"T":1723161255300,'
        '"s":"BTCUSDT","U":%d,"u":%d%s,"b":[["55653.87","1.500"]],"a":[["55660.00","0.000"]]}}'
    )
    answer = '{"lastUpdateId":104,"E":1,"T":1,"bids":[["55653.00","1.000"]],"asks":[["55661.00","2.000"]]}'
    return Sample(
        instrument(venue, "BTCUSDT", "0.01", "0.001"),
        (depth % (101, 105, previous % 100 if previous else ""),),
        answer,
        (
            depth % (106, 107, previous % 105 if previous else ""),
            '{"stream":"btcusdt@%s","data":{"e":"%s","E":1723161255343,"s":"BTCUSDT","t":37,"a":37,'
            '"p":"61837.63","q":"0.020","T":1723161255342,"m":true,"X":"MARKET"}}' % (trade, trade),
            '{"result":null,"id":1}',
            '{"error":{"code":2,"msg":"Invalid request"},"id":1}',
        ),
    )


def _delivery() -> Sample:
    one = _binance("binance_delivery", ',"pu":%d', "trade")
    mark = (
        '{"stream":"btcusdt@markPrice@1s","data":{"e":"markPriceUpdate","E":1596095725000,"s":"BTCUSDT",'
        '"p":"10934.62615417","i":"10930.5","P":"10962.17178236","r":"0.00038167","T":1596096000000}}'
    )
    force = (
        '{"stream":"btcusdt@forceOrder","data":{"e":"forceOrder","E":1591154240950,"o":{"s":"BTCUSDT",'
        '"S":"SELL","o":"LIMIT","f":"IOC","q":"1","p":"9425.5","ap":"9496.5","X":"FILLED","l":"1","z":"1",'
        '"T":1591154240949}}}'
    )
    return Sample(one.instrument, one.frames, one.answer, (*one.more, mark, force))


def _bitfinex(rows: str, change: str) -> Sample:
    return Sample(
        instrument("bitfinex", "tBTCUSD", "0.00000001", "0.00000001"),
        (
            '{"event":"conf","status":"OK","flags":196608}',
            '{"event":"subscribed","channel":"book","chanId":1,"symbol":"tBTCUSD","prec":"P0"}',
            f"[1,[{rows}],1]",
            '{"event":"subscribed","channel":"trades","chanId":3,"symbol":"tBTCUSD"}',
            '{"event":"subscribed","channel":"status","chanId":4,"key":"deriv:tBTCUSD"}',
        ),
        more=(
            f"[1,{change},2]",
            '[1,"cs",-1432341132,2]',
            '[3,"te",[670002570,1618677535660,-76.7682617,0.00002516],2]',
            "[3,[[670002569,1618677535660,-1,2]],2]",
            "[4,[1596124822000,null,0.896,0.771995,null,1396531.67,null,1596153600000,0.0001056,6,null,"
            "-0.01381344,null,null,0.7664,null,null,246.94,null,null,null,0.0005,0.0025],2]",
            '[1,"hb",2]',
            "[9,[1,2,3],2]",
            '{"event":"info","code":20060,"msg":"","platform":{"status":0}}',
            '{"event":"error","code":10300,"symbol":"tBTCUSD","msg":"subscription failed"}',
        ),
    )


def _bitstamp(channel: str, row: str, message: str, answer: str) -> Sample:
    return Sample(
        instrument("bitstamp", "btcusd", "0.01", "0.00000001"),
        ('{"event":"bts:subscription_succeeded","channel":"%s_btcusd","data":{}}' % channel,),
        '{"timestamp":"1","microtimestamp":"20","bids":[%s],"asks":[%s]}' % (answer % 100, answer % 101),
        (
            '{"event":"%s","channel":"%s_btcusd","data":%s}' % (message, channel, row),
            '{"event":"trade","channel":"live_trades_btcusd","data":{"id":216000477,"type":0,'
            '"microtimestamp":"1641343699596000","amount_str":"0.0792","price_str":"3805.44"}}',
            '{"event":"bts:error","channel":"","data":{"code":null,"message":"Bad subscription string."}}',
            '{"event":"bts:request_reconnect","channel":"","data":""}',
        ),
    )


_BYBIT = (
    '{"topic":"orderbook.50.BTCUSDT","type":"%s","ts":1672304484978,"data":{"s":"BTCUSDT",'
    '"b":[["16493.50","0.006"]],"a":[["16611.00","0.029"]],"u":%d,"seq":7961638724},"cts":1672304484976}'
)
_OKX = (
    '{"arg":{"channel":"books","instId":"BTC-USDT"},"action":"%s","data":[{"asks":[["30249.4","1","0","1"]],'
    '"bids":[["30182.6","2","0","1"]],"ts":"1652459225464","checksum":%d,"prevSeqId":%d,"seqId":%d}]}'
)
_OKX_SUM = _signed("30182.6:2:30249.4:1")
_COINBASE = '{"channel":"%s","timestamp":"' + _ISO + '","sequence_num":%d,"events":[%s]}'
_COINBASE_BOOK = (
    '{"type":"%s","product_id":"BTC-USD","updates":[{"side":"bid","event_time":"'
    + _ISO
    + '","price_level":"100.5","new_quantity":"2"}]}'
)
_FULL = '{"product_id":"BTC-USD","time":"' + _ISO + '","sequence":%d,"side":"sell",%s}'
# Kraken's checksum: the digits of price and size without leading zeros, asks first.
_KRAKEN_SUM = crc32(b"10102000000001000100000000")
_KRAKEN = (
    '{"channel":"book","type":"%s","data":[{"symbol":"BTC/USD","bids":[{"price":100.0,"qty":1.00000000}],'
    '"asks":[{"price":101.0,"qty":2.00000000}],"checksum":%d,"timestamp":"' + _ISO + '"}]}'
)

_KRAKEN_L3 = (
    '{"channel":"level3","type":"%s","data":[{"symbol":"BTC/USD","bids":[{%s"order_id":"OA-1",'
    '"limit_price":100.0,"order_qty":1.00000000,"timestamp":"'
    + _ISO
    + '"}],"asks":[{%s"order_id":"OB-1","limit_price":101.0,"order_qty":2.00000000,"timestamp":"'
    + _ISO
    + '"}],"checksum":%d}]}'
)
_HYPERLIQUID = (
    '{"channel":"l2Book","data":{"coin":"BTC","time":173791884354%d,"levels":[[{"px":"105055.0","sz":"%s",'
    '"n":5}],[{"px":"105056.0","sz":"6.34472","n":13}]]}}'
)
_DERIBIT = '{"jsonrpc":"2.0","method":"subscription","params":{"channel":"%s.BTC-PERPETUAL.100ms","data":%s}}'
_DERIBIT_LEVELS = (
    '"instrument_name":"BTC-PERPETUAL","bids":[["new",37392.5,3000.0]],"asks":[["change",37399.0,6530.0]]}'
)

SAMPLES: dict[str, Sample] = {
    "binance": _binance("binance", "", "trade"),
    "binance_futures": _binance("binance_futures", ',"pu":%d', "aggTrade"),
    "binance_delivery": _delivery(),
    "bitfinex": _bitfinex("[100,1,1],[101,1,-2]", "[100.5,2,3]"),
    "bitfinex_l3": _bitfinex("[11,100,1],[12,101,-2]", "[13,100.5,3]"),
    "bitstamp": _bitstamp(
        "diff_order_book",
        '{"timestamp":"1","microtimestamp":"1641343691406478","bids":[["99.71","1.762"]],"asks":[]}',
        "data",
        '["%d.00","1"]',
    ),
    "bitstamp_l3": _bitstamp(
        "live_orders",
        '{"id":1443875737346049,"order_type":0,"microtimestamp":"1641343699596000","amount_str":"0.5",'
        '"price_str":"99.44"}',
        "order_created",
        '["%d.00","1","77"]',
    ),
    "bybit": Sample(
        instrument("bybit", "BTCUSDT.P", "0.01", "0.001"),
        (_BYBIT % ("snapshot", 10),),
        more=(
            _BYBIT % ("delta", 11),
            '{"topic":"publicTrade.BTCUSDT","type":"snapshot","ts":1672304486868,"data":[{"T":1672304486865,'
            '"s":"BTCUSDT","S":"Buy","v":"0.001","p":"16578.50","i":"2290000000061666327","BT":false}]}',
            '{"topic":"tickers.BTCUSDT","type":"snapshot","data":{"symbol":"BTCUSDT","markPrice":"17217.33",'
            '"indexPrice":"17227.36","openInterest":"68744.761","nextFundingTime":"1673280000000",'
            '"fundingRate":"-0.000212"},"cs":24987956059,"ts":1673272861686}',
            '{"topic":"allLiquidation.BTCUSDT","type":"snapshot","ts":1739502303204,"data":[{"T":1739502302929,'
            '"s":"BTCUSDT","S":"Sell","v":"20000","p":"0.04"}]}',
            '{"success":false,"ret_msg":"no","conn_id":"x","req_id":"BTCUSDT.P","op":"subscribe"}',
        ),
    ),
    "coinbase": Sample(
        instrument("coinbase", "BTC-USD", "0.01", "0.00000001"),
        (_COINBASE % ("l2_data", 0, _COINBASE_BOOK % "snapshot"),),
        more=(
            _COINBASE % ("l2_data", 1, _COINBASE_BOOK % "update"),
            _COINBASE
            % (
                "market_trades",
                1,
                '{"type":"update","trades":[{"product_id":"BTC-USD","trade_id":"12","price":"100.5",'
                '"size":"0.25","time":"' + _ISO + '","side":"SELL"}]}',
            ),
            _COINBASE
            % (
                "status",
                1,
                '{"type":"snapshot","products":[{"id":"BTC-USD","status":"online","trading_disabled":true}]}',
            ),
            '{"type":"error","message":"no"}',
        ),
    ),
    "coinbase_full": Sample(
        instrument("coinbase", "BTC-USD", "0.01", "0.00000001"),
        (
            '{"type":"subscriptions","channels":[{"name":"full","product_ids":["BTC-USD"]}]}',
            _FULL % (50, f'"type":"open","order_id":"{_ID}","price":"100.5","remaining_size":"1.00"'),
        ),
        '{"sequence":49,"time":"%s","bids":[["100.00","1","%s"]],"asks":[]}' % (_ISO, _OTHER_ID),
        (
            _FULL % (51, f'"type":"done","order_id":"{_ID}","reason":"filled"'),
            _FULL
            % (
                51,
                f'"type":"match","trade_id":10,"maker_order_id":"{_ID}","taker_order_id":"{_OTHER_ID}",'
                '"size":"0.5","price":"100.5"',
            ),
            _FULL % (51, f'"type":"change","order_id":"{_ID}","new_size":"0.4","price":"100.5"'),
            '{"type":"heartbeat","product_id":"BTC-USD","sequence":51,"last_trade_id":1}',
            '{"type":"error","message":"no","reason":"because"}',
        ),
    ),
    "deribit": Sample(
        instrument("deribit", "BTC-PERPETUAL", "0.5", "10"),
        (
            _DERIBIT
            % ("book", '{"type":"snapshot","timestamp":1622626784890,"change_id":7,' + _DERIBIT_LEVELS),
        ),
        more=(
            _DERIBIT
            % (
                "book",
                '{"type":"change","timestamp":1622626784990,"prev_change_id":7,"change_id":9,'
                + _DERIBIT_LEVELS,
            ),
            _DERIBIT
            % (
                "trades",
                '[{"trade_seq":30289442,"trade_id":"48079269","timestamp":1590484512188,"price":8950.0,'
                '"instrument_name":"BTC-PERPETUAL","direction":"sell","amount":10.0,"liquidation":"T"}]',
            ),
            _DERIBIT
            % (
                "ticker",
                '{"timestamp":1550652954406,"open_interest":18918470,"mark_price":3940.06,'
                '"instrument_name":"BTC-PERPETUAL","index_price":3931.73,"current_funding":0.00042}',
            ),
            '{"jsonrpc":"2.0","id":10,"error":{"code":11050,"message":"bad_request"}}',
        ),
    ),
    "hyperliquid": Sample(
        instrument("hyperliquid", "BTC"),
        (_HYPERLIQUID % (1, "3.03622"),),
        more=(
            _HYPERLIQUID % (2, "2.5"),
            '{"channel":"trades","data":[{"coin":"BTC","hash":"0xde","px":"105056.0","side":"B","sz":"0.00219",'
            '"tid":121451470284048,"time":1737918843543,"users":["0xe9","0x68"]}]}',
            '{"channel":"activeAssetCtx","data":{"coin":"BTC","ctx":{"funding":"0.0000125","markPx":"105055.0",'
            '"oraclePx":"105048.0","openInterest":"24000.5"}}}',
            '{"channel":"error","data":"Invalid subscription {\\"type\\":\\"l2Book\\",\\"coin\\":\\"X\\"}"}',
            '{"channel":"pong"}',
        ),
    ),
    "kraken": Sample(
        instrument("kraken", "BTC/USD"),
        (_KRAKEN % ("snapshot", _KRAKEN_SUM),),
        more=(
            _KRAKEN % ("update", _KRAKEN_SUM),
            '{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":100.5,'
            '"qty":6423.46326,"trade_id":4665846,"timestamp":"' + _ISO + '"}]}',
            '{"channel":"instrument","type":"update","data":{"pairs":[{"symbol":"BTC/USD",'
            '"status":"cancel_only"}]}}',
            '{"channel":"status","type":"update","data":[{"system":"online","version":"2.0.0"}]}',
            '{"method":"subscribe","success":false,"error":"no","symbol":"BTC/USD"}',
        ),
    ),
    "kraken_l3": Sample(
        instrument("kraken", "BTC/USD"),
        (_KRAKEN_L3 % ("snapshot", "", "", _KRAKEN_SUM),),
        more=(
            _KRAKEN_L3 % ("update", '"event":"add",', '"event":"modify",', _KRAKEN_SUM),
            '{"method":"subscribe","success":true,"result":{"channel":"level3","symbol":"BTC/USD"}}',
            '{"method":"subscribe","success":false,"error":"no","symbol":"BTC/USD"}',
            '{"channel":"heartbeat"}',
        ),
    ),
    "kraken_v1": Sample(
        instrument("kraken", "BTC/USD"),
        (
            '[1920,{"as":[["101.0","2.00000000","1618678131.920708"]],'
            '"bs":[["100.0","1.00000000","1618678131.920708"]]},"book-10","BTC/USD"]',
        ),
        more=(
            '[1920,{"a":[["101.0","2.00000000","1618678145.920470"]],"c":"%d"},"book-10","BTC/USD"]'
            % _KRAKEN_SUM,
            '[993,[["100.5","0.89594024","1618678142.557535","s","l",""]],"trade","BTC/USD"]',
            '{"event":"systemStatus","status":"maintenance","version":"1.8.3"}',
            '{"event":"subscriptionStatus","status":"error","errorMessage":"no","pair":"BTC/USD"}',
        ),
    ),
    "okx": Sample(
        instrument("okx", "BTC-USDT"),
        (_OKX % ("snapshot", _OKX_SUM, -1, 10),),
        more=(
            _OKX % ("update", _OKX_SUM, 10, 15),
            '{"arg":{"channel":"trades","instId":"BTC-USDT"},"data":[{"instId":"BTC-USDT",'
            '"tradeId":"338476308","px":"30243.5","sz":"0.1","side":"buy","ts":"1652459226050"}]}',
            '{"arg":{"channel":"instruments","instType":"SPOT"},"data":[{"instId":"BTC-USDT",'
            '"state":"suspend"}]}',
            '{"arg":{"channel":"funding-rate","instId":"BTC-USDT"},"data":[{"fundingRate":"0.0001875391",'
            '"fundingTime":"1700726400000","instId":"BTC-USDT","ts":"1700724675402"}]}',
            '{"arg":{"channel":"mark-price","instId":"BTC-USDT"},"data":[{"instId":"BTC-USDT",'
            '"markPx":"0.1","ts":"1597026383085"}]}',
            '{"arg":{"channel":"open-interest","instId":"BTC-USDT"},"data":[{"instId":"BTC-USDT",'
            '"oi":"5000","ts":"1597026383085"}]}',
            '{"arg":{"channel":"liquidation-orders","instType":"SWAP"},"data":[{"details":[{"bkPx":"0.7",'
            '"side":"buy","sz":"13","ts":"1692266434010"}],"instId":"BTC-USDT","instType":"SWAP"}]}',
            '{"event":"error","code":"60018","msg":"Wrong URL or channel:books,instId:BTC-USDT"}',
            '{"event":"notice","code":"64008","msg":"The connection will soon be closed"}',
        ),
    ),
}

_FILTERS = (
    '{"symbols":[{"symbol":"BTCUSDT","baseAsset":"BTC","quoteAsset":"USDT","quotePrecision":8,'
    '"baseAssetPrecision":8,"pricePrecision":2,"quantityPrecision":3,"filters":[{"filterType":"PRICE_FILTER",'
    '"tickSize":"0.01"},{"filterType":"LOT_SIZE","stepSize":"0.001"}]}]}'
)
_PAIRS = (
    '{"error":[],"result":{"XXBTZUSD":{"wsname":"BTC/USD","pair_decimals":1,"lot_decimals":8,'
    '"tick_size":"0.5"}}}'
)
_TRADING_PAIRS = '[{"url_symbol":"btcusd","base_decimals":8,"counter_decimals":1,"trading":"Enabled"}]'
# Answers with reference data.
REFERENCE: dict[str, str] = {
    "binance": _FILTERS,
    "binance_delivery": _FILTERS,
    "binance_futures": _FILTERS,
    "bitfinex": '[["BTCUSD","AVAX:USD"]]',
    "bitfinex_l3": '[["BTCUSD","AVAX:USD"]]',
    "bitstamp": _TRADING_PAIRS,
    "bitstamp_l3": _TRADING_PAIRS,
    "bybit": '{"retCode":0,"retMsg":"OK","result":{"category":"linear","list":[{"symbol":"BTCUSDT",'
    '"contractType":"LinearPerpetual","lotSizeFilter":{"qtyStep":"0.001"},"priceFilter":{"tickSize":"0.01"}}]}}',
    "coinbase": '{"products":[{"product_id":"BTC-USD","price_increment":"0.01","base_increment":"0.01"}]}',
    "coinbase_full": '{"id":"BTC-USD","quote_increment":"0.01","base_increment":"0.00000001"}',
    "deribit": '{"jsonrpc":"2.0","result":{"instrument_name":"BTC-PERPETUAL","tick_size":0.5,'
    '"min_trade_amount":10.0,"kind":"future","instrument_type":"reversed"}}',
    "hyperliquid": '{"universe":[{"name":"BTC","szDecimals":5,"maxLeverage":40}]}',
    "kraken": _PAIRS,
    "kraken_l3": _PAIRS,
    "kraken_v1": _PAIRS,
    "okx": '{"code":"0","msg":"","data":[{"instId":"BTC-USDT","tickSz":"0.1","lotSz":"0.00001"}]}',
}
