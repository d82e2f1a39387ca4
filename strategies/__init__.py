"""Strategies: classes whose methods are called when views change, and the paper orders they place.

from orderbook import Strategy, on_view

class Sobi(Strategy):
    @on_view("sobi", when="pressure > :threshold")
    def bids_press(self, event):
        self.buy(event.new.symbol, volume=100)
"""
