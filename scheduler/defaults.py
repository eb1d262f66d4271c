"""Where things are unless somebody says otherwise; imports nothing."""

LISTEN = "127.0.0.1:7443"
STORE = "sqlite:///muster.db"
