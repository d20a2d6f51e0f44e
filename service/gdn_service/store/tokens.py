"""All SQL on tokens and idempotency keys."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gdn_service.clock import now
from gdn_service.store.models import IdempotencyKey, Token


class TokenRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, token: Token) -> None:
        self._session.add(token)
        self._session.flush()

    def get(self, token_id: str) -> Token | None:
        return self._session.get(Token, token_id)

    def all(self) -> list[Token]:
        return list(self._session.scalars(select(Token).order_by(Token.created_at)))

    def revoke(self, token_id: str) -> bool:
        """False when there is no such token."""
        token = self.get(token_id)
        if token is None:
            return False
        self._session.execute(
            update(Token)
            .where(Token.id == token_id, Token.revoked_at.is_(None))
            .values(revoked_at=now())
        )
        return True

    def used_key(self, token_id: str, key: str) -> IdempotencyKey | None:
        return self._session.get(IdempotencyKey, (token_id, key))

    def remember_key(self, token_id: str, key: str, request_hash: str, job_id: str) -> None:
        self._session.add(
            IdempotencyKey(
                token_id=token_id,
                key=key,
                request_hash=request_hash,
                job_id=job_id,
                created_at=now(),
            )
        )
        self._session.flush()
