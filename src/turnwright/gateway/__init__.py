"""Several models as one: retry, fallback, deadlines and limits, behind the model port that each of them has.

Rule: nobody who watches ever sees two answers glued together, and no request is tried more often or for longer than
was allowed.
"""

from turnwright.gateway.asking import FALLBACK, Attempt, Backoff, Gateway
from turnwright.gateway.routes import Route

__all__ = ["FALLBACK", "Attempt", "Backoff", "Gateway", "Route"]
