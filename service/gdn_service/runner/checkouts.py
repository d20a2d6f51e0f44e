"""Commits of targets on this host: mirrors, bundles and exported trees together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from gdn_service.errors import BundleInvalid, GitError, TreeError, UnknownCommit
from gdn_service.runner.bundle import Head, import_bundle, receive_bundle
from gdn_service.runner.checkout import Checkout, Limits, export_tree, remove_tree
from gdn_service.runner.git import FULL_SHA, Git
from gdn_service.runner.mirror import CommitFacts, Mirror
from gdn_service.settings import Settings
from gdn_service.store.models import Target

KEPT_TREES = 32
_TREE_AGE_S = 24 * 3600


class Checkouts:
    def __init__(self, settings: Settings, bundle_content: Callable[[str], bytes | None]) -> None:
        self._settings = settings
        self._bundle_content = bundle_content
        self._git = Git(
            settings.mirrors_dir, settings.git_timeout_s, memory_bytes=settings.git_memory_bytes
        )

    def mirror(self, target: Target) -> Mirror:
        return Mirror(self._git, self._settings.mirrors_dir, target.name, target.repository)

    def resolve(self, target: Target, rev: str, bundle_id: str | None = None) -> CommitFacts:
        """The commit that `rev` names, looked for in the bundle too if one is given."""
        mirror = self.mirror(target)
        if bundle_id is not None and FULL_SHA.fullmatch(rev.strip().lower()):
            self._bring(mirror, rev.strip().lower(), bundle_id)
        return mirror.facts(mirror.resolve(rev))

    def export(self, target: Target, sha: str, bundle_id: str | None) -> Checkout:
        """The commit's tree on this host, read-only. Raises GitError, TreeError, UnknownCommit."""
        mirror = self.mirror(target)
        self._bring(mirror, sha, bundle_id)
        limits = Limits(
            max_bytes=self._settings.tree_max_bytes,
            max_files=self._settings.tree_max_files,
            max_depth=self._settings.tree_max_depth,
            max_path=self._settings.tree_max_path,
        )
        checkout = export_tree(self._git, mirror, sha, self._settings.trees_dir, limits)
        self._prune()
        return checkout

    def first_parents(self, target: Target, sha: str, limit: int) -> list[str]:
        """Ancestors of a commit that was exported here, as in `Mirror.first_parents`."""
        return self.mirror(target).first_parents(sha, limit)

    def import_bundle(
        self, target: Target, bundle_id: str, content: bytes
    ) -> tuple[list[Head], bytes]:
        """Its heads, and the content to keep: a bundle that every other host can import.

        Raises BundleInvalid, MirrorError, PayloadTooLarge.
        """
        mirror = self.mirror(target)
        mirror.fetch()  # what the bundle builds on may have been pushed a moment ago
        limit = self._settings.bundle_max_bytes
        return receive_bundle(self._git, mirror, bundle_id, content, limit)

    def bundles_with(self, target: Target, sha: str) -> list[str]:
        """Ids of the bundles without which another host cannot have the commit."""
        return self.mirror(target).bundles_with(sha)

    def _bring(self, mirror: Mirror, sha: str, bundle_id: str | None) -> None:
        """Make sure that the mirror has the commit; another host may have taken the bundle."""
        if mirror.has(sha):
            return
        mirror.fetch()
        content = None if bundle_id is None else self._bundle_content(bundle_id)
        if content is not None and bundle_id is not None and not mirror.has(sha):
            import_bundle(self._git, mirror, bundle_id, content)
        if not mirror.has(sha):
            raise UnknownCommit(
                f"commit {sha} is neither in {mirror.repository} nor in a bundle: push it, or "
                "send it as a bundle (gdn-client does so by itself)"
            )

    def _prune(self) -> None:
        """Keep the newest trees; one that may still be in use is younger than a day."""
        trees = [p for p in self._settings.trees_dir.iterdir() if FULL_SHA.fullmatch(p.name)]
        newest = sorted(trees, key=lambda path: path.stat().st_mtime, reverse=True)
        for tree in newest[KEPT_TREES:]:
            if time.time() - tree.stat().st_mtime > _TREE_AGE_S:
                remove_tree(tree)


def git_missing() -> bool:
    return shutil.which("git") is None


CHECKOUT_ERRORS = (GitError, TreeError, UnknownCommit, BundleInvalid)
