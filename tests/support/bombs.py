"""Commits of a few hundred bytes that unfold: trees that hold each other, and long names."""

from __future__ import annotations

from support.service_bench import Repo

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def tree(repo: Repo, *entries: tuple[str, str, str]) -> str:
    """A tree of (mode, object, name), in git's order."""
    kinds = {"040000": "tree", "160000": "commit"}
    lines = [f"{mode} {kinds.get(mode, 'blob')} {sha}\t{name}\0" for mode, sha, name in entries]
    return repo.git("mktree", "-z", "--missing", data="".join(lines).encode())


def blob(repo: Repo, content: bytes) -> str:
    return repo.git("hash-object", "-w", "--stdin", data=content)


def nested(repo: Repo, innermost: str, *, levels: int, width: int) -> str:
    """`width` to the power of `levels` copies of a tree, in `levels` objects."""
    for _ in range(levels):
        innermost = tree(repo, *(("040000", innermost, f"{n:02}") for n in range(width)))
    return innermost


def many_files(repo: Repo) -> str:
    """10^8 files."""
    return nested(repo, tree(repo, ("100644", blob(repo, b""), "f")), levels=8, width=10)


def many_folders(repo: Repo) -> str:
    """10^16 folders without a file."""
    repo.git("hash-object", "-w", "-t", "tree", "--stdin", data=b"")
    return nested(repo, EMPTY_TREE, levels=16, width=10)


def many_bytes(repo: Repo) -> str:
    """10,000 files of 8 MiB."""
    return nested(repo, tree(repo, ("100644", blob(repo, bytes(8 << 20)), "f")), levels=4, width=10)


def deep(repo: Repo) -> str:
    """A path of 400 names."""
    return nested(repo, tree(repo, ("100644", blob(repo, b""), "f")), levels=400, width=1)


def long_name(repo: Repo) -> str:
    """A name of 1 MiB."""
    return tree(repo, ("100644", blob(repo, b""), "x" * (1 << 20)))


def commit(repo: Repo, made: str, message: bytes = b"unfolds") -> str:
    """A commit of the tree `made` on HEAD, with the branch ``bomb`` on it."""
    sha = repo.git("commit-tree", made, "-p", "HEAD", data=message)
    repo.git("update-ref", "refs/heads/bomb", sha)
    return sha


def bundle(repo: Repo) -> bytes:
    """The branch ``bomb`` without what HEAD has; it is then no longer in the repository."""
    path = repo.path / ".git" / "bomb.bundle"
    repo.git("bundle", "create", "--quiet", str(path), "HEAD..bomb")
    repo.git("update-ref", "-d", "refs/heads/bomb")
    return path.read_bytes()
