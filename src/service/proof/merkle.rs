//! The root over the leaves of a checkpoint, and the path that shows one leaf to be under it (RFC 9162, 2.1).

use sha2::{Digest as _, Sha256};

/// A hash.
pub type Hash = [u8; 32];

fn leaf_hash(leaf: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(leaf).finalize().into()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The largest power of two below a number of leaves.
fn split(leaves: usize) -> usize {
    leaves.next_power_of_two() / 2
}

/// The root over leaves.
#[must_use]
pub fn root(leaves: &[&[u8]]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [one] => leaf_hash(one),
        more => {
            let (left, right) = more.split_at(split(more.len()));
            node_hash(&root(left), &root(right))
        }
    }
}

/// The hashes that lead from a leaf to the root, the nearest first.
#[must_use]
pub fn path(leaves: &[&[u8]], index: usize) -> Vec<Hash> {
    if leaves.len() < 2 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(split(leaves.len()));
    let (mut inner, other) = if index < left.len() {
        (path(left, index), root(right))
    } else {
        (path(right, index.saturating_sub(left.len())), root(left))
    };
    inner.push(other);
    inner
}

/// The root that a leaf, its place and its path come to; `None` where they don't fit.
#[must_use]
pub fn root_of(leaf: &[u8], index: usize, leaves: usize, path: &[Hash]) -> Option<Hash> {
    if index >= leaves {
        return None;
    }
    let Some((last, rest)) = path.split_last() else { return (leaves == 1).then(|| leaf_hash(leaf)) };
    if leaves < 2 {
        return None;
    }
    let left = split(leaves);
    if index < left {
        Some(node_hash(&root_of(leaf, index, left, rest)?, last))
    } else {
        let right = root_of(leaf, index.saturating_sub(left), leaves.saturating_sub(left), rest)?;
        Some(node_hash(last, &right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_leads_to_the_root_from_its_own_place_alone() {
        for size in 1..=33_usize {
            let texts: Vec<String> = (0..size).map(|number| format!("leaf {number}")).collect();
            let leaves: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let root = root(&leaves);
            for (index, leaf) in leaves.iter().enumerate() {
                let path = path(&leaves, index);
                assert_eq!(root_of(leaf, index, size, &path), Some(root), "{index} of {size}");
                assert_ne!(root_of(b"another", index, size, &path), Some(root));
                assert_ne!(root_of(leaf, index + 1, size, &path), Some(root));
                if let Some((_, shorter)) = path.split_last() {
                    assert_ne!(root_of(leaf, index, size, shorter), Some(root));
                }
            }
            assert_eq!(root_of(b"x", size, size, &[]), None);
        }
    }

    #[test]
    fn roots_are_those_of_the_specification() {
        // The empty tree and the tree of one empty leaf, as implementations of Certificate Transparency give them.
        assert_eq!(hex::encode(root(&[])), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(hex::encode(root(&[b""])), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    }
}
