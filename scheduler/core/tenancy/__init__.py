"""What tenants may hold, hold and held: quotas, shares, cells."""
