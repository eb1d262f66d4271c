"""How things are unless somebody says otherwise; imports nothing."""

LISTEN = "127.0.0.1:7443"
STORE = "sqlite:///muster.db"
RESIZE_EVERY_S = 1_800
LEAST_GAIN_PERCENT = 10
