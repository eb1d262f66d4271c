"""How things are unless somebody says otherwise; imports nothing."""

LISTEN = "127.0.0.1:7443"
CONSOLE = "127.0.0.1:7480"
STORE = "sqlite:///muster.db"
MOST_RESERVATIONS = 500
MOST_SLIPS = 1
RESIZE_EVERY_S = 1_800
SLOW_PERCENT = 5
LEAST_GAIN_PERCENT = 10
MOST_DAYS = 36_500  # for which events are kept: a century
ENDED_DAYS = 365  # for which jobs that ended can be looked up
MOST_LEASE_S = 86_400
