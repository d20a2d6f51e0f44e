"""Bearer tokens ``gdn_<id>_<secret>`` and their scopes: read < submit < manage < admin.

The secret has 256 random bits, so one SHA-256 of it is as hard to reverse as
the secret is to guess.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import secrets

from gdn_service.clock import now
from gdn_service.errors import Forbidden, Unauthorised
from gdn_service.store.models import Token
from gdn_service.store.store import Store

_FORM = re.compile(r"gdn_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Scope(enum.StrEnum):
    READ = "read"
    SUBMIT = "submit"
    MANAGE = "manage"
    ADMIN = "admin"

    def covers(self, needed: Scope) -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(needed)


def create_token(store: Store, name: str, scope: Scope) -> str:
    """Store a new token; its text is returned here once and never again."""
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    with store.write() as tx:
        tx.tokens.add(
            Token(
                id=token_id,
                name=name,
                scope=scope,
                secret_hash=_hash(secret),
                created_at=now(),
            )
        )
    return f"gdn_{token_id}_{secret}"


def authenticate(store: Store, text: str | None) -> Token:
    """The live token that `text` is. Raises Unauthorised without saying which part is wrong."""
    if text is None:
        raise Unauthorised(
            "send a token as 'Authorization: Bearer gdn_...'; an operator makes one with "
            "`gdn-service token create`, and `gdn-client login` keeps it"
        )
    match = _FORM.fullmatch(text)
    token = None
    if match is not None:
        with store.read() as tx:
            token = tx.tokens.get(match[1])
    if (
        match is None
        or token is None
        or token.revoked_at is not None
        or not hmac.compare_digest(token.secret_hash, _hash(match[2]))
    ):
        raise Unauthorised("the token is not valid, or was revoked; ask an operator for a new one")
    return token


def require(token: Token, needed: Scope) -> None:
    if not Scope(token.scope).covers(needed):
        raise Forbidden(f"this needs scope {needed}; the token {token.name!r} has {token.scope}")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
