"""A radix tree of token ids: what a later prompt shares with an earlier one need not be computed.

Least recently used leaves go first when the tree outgrows its budget, as in SGLang.
"""

from dataclasses import dataclass, field

Tokens = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """An edge of token ids and what follows it; `used` is the tick of the last match."""

    tokens: Tokens
    parent: "Node | None"
    used: int = 0
    children: dict[int, "Node"] = field(default_factory=dict)


def shared_length(left: Tokens, right: Tokens) -> int:
    """Return how many tokens two sequences share from their beginning."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(i for i in range(limit) if left[i] != right[i])


class PrefixCache:
    """Token sequences that were computed, sharing their common beginnings."""

    def __init__(self) -> None:
        self.size = 0
        self._tick = 0
        self._root = Node((), None)

    def clear(self) -> None:
        self.size = 0
        self._root = Node((), None)

    def match(self, tokens: Tokens) -> int:
        """Return how many leading tokens are cached, and mark them as just used."""
        return self._descend(tokens)[1]

    def insert(self, tokens: Tokens) -> None:
        """Remember a sequence; a beginning that is there already costs nothing more."""
        node, found = self._descend(tokens)
        if found == len(tokens):
            return
        leaf = Node(tokens[found:], node, self._tick)
        node.children[leaf.tokens[0]] = leaf
        self.size += len(leaf.tokens)

    def trim(self, budget: int) -> None:
        """Forget least recently used leaves until at most `budget` tokens are left."""
        while self.size > max(0, budget):
            # All the leaves of one scan, oldest first: a scan per leaf would be quadratic.
            for leaf in sorted(self._leaves(), key=lambda node: node.used):
                if self.size <= max(0, budget):
                    return
                self._remove(leaf)

    def _descend(self, tokens: Tokens) -> tuple[Node, int]:
        """Walk as far as `tokens` is known, splitting the edge where it ends inside one."""
        self._tick += 1
        node, found = self._root, 0
        while found < len(tokens) and (child := node.children.get(tokens[found])):
            shared = shared_length(child.tokens, tokens[found : found + len(child.tokens)])
            if shared < len(child.tokens):
                child = self._split(child, shared)
            child.used = self._tick
            node, found = child, found + shared
        return node, found

    def _split(self, node: Node, at: int) -> Node:
        """Cut an edge in two and return its upper half."""
        parent = node.parent
        assert parent is not None, "the root has no edge to split"
        upper = Node(node.tokens[:at], parent, self._tick)
        parent.children[upper.tokens[0]] = upper
        node.tokens, node.parent = node.tokens[at:], upper
        upper.children[node.tokens[0]] = node
        return upper

    def _leaves(self) -> list[Node]:
        leaves, pending = [], [self._root]
        while pending:
            node = pending.pop()
            pending.extend(node.children.values())
            if not node.children and node is not self._root:
                leaves.append(node)
        return leaves

    def _remove(self, leaf: Node) -> None:
        assert leaf.parent is not None, "the root is never removed"
        del leaf.parent.children[leaf.tokens[0]]
        self.size -= len(leaf.tokens)
