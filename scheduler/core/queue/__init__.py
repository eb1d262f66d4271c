"""Who is next, and who may go ahead: order, reservations, backfill."""
