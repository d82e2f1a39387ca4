"""orderbook.engine"""
