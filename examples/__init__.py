"""
What wheel-timer is for, in three short programs; `python -m examples` runs them.

Each is the code of a small business, then its story: the same code on a server whose days pass in
a moment (wheel_timer/testing). Run for real, it is the same but for the clock.
"""
