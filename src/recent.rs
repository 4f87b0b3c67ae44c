//! What was used most recently, within a bound. It stands on the path of every request: a look is one short lock and one
//! lookup, and what is new is always taken in, at the cost of what was used longest ago. (A cache that weighs a newcomer
//! against what it has would turn away an effect that was just proposed, and its outcome would have to load it.)

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::{DefaultHasher, LruCache};

/// Parts with a lock each, a power of two: threads rarely meet at one.
const PARTS: usize = 16;

/// Values by key, up to a total weight.
pub struct Recent<K: Hash + Eq, V> {
    parts: Vec<Mutex<Part<K, V>>>,
    /// Of keys, with a seed of this process: nobody outside can tell which ones meet.
    hasher: DefaultHasher,
    weigh: fn(&V) -> usize,
    /// Most weight of a part.
    most: usize,
}

struct Part<K: Hash + Eq, V> {
    values: LruCache<K, V>,
    weight: usize,
}

impl<K: Hash + Eq, V> fmt::Debug for Recent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("most", &self.most.saturating_mul(PARTS)).finish_non_exhaustive()
    }
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// Nothing yet; so many values at most, in all (each part takes its share, so some fewer where keys are unlucky).
    #[must_use]
    pub fn of_values(most: usize) -> Self {
        Self::of_weight(most, |_| 1)
    }

    /// Nothing yet; values of so much weight at most, in all.
    #[must_use]
    pub fn of_weight(most: usize, weigh: fn(&V) -> usize) -> Self {
        let part = || Mutex::new(Part { values: LruCache::unbounded(), weight: 0 });
        Self {
            parts: std::iter::repeat_with(part).take(PARTS).collect(),
            hasher: DefaultHasher::default(),
            weigh,
            most: most.div_ceil(PARTS),
        }
    }

    /// The value of a key, which counts as used now.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.part(key)?.values.get(key).cloned()
    }

    /// Keeps a value, in place of the one that the key had. One for which a part has no room at all is not kept.
    pub fn insert(&self, key: K, value: V) {
        let weight = (self.weigh)(&value);
        if weight > self.most {
            return self.forget(&key);
        }
        // What leaves is dropped when the lock is free again.
        let mut left = Vec::new();
        let Some(mut part) = self.part(&key) else { return };
        part.weight = part.weight.saturating_add(weight);
        left.extend(part.values.push(key, value));
        if let Some((_, old)) = left.first() {
            part.weight = part.weight.saturating_sub((self.weigh)(old));
        }
        while part.weight > self.most {
            let Some(oldest) = part.values.pop_lru() else { break };
            part.weight = part.weight.saturating_sub((self.weigh)(&oldest.1));
            left.push(oldest);
        }
        drop(part);
    }

    /// Forgets a key.
    pub fn forget<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let Some(mut part) = self.part(key) else { return };
        let left = part.values.pop(key);
        part.weight = part.weight.saturating_sub(left.as_ref().map_or(0, self.weigh));
        drop(part);
    }

    /// The part of a key. What panicked with the lock in hand was no code of ours: nothing is half done in there.
    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> Option<MutexGuard<'_, Part<K, V>>> {
        let part = self.parts.get(self.number(key))?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn number<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        let [byte, ..] = self.hasher.hash_one(key).to_le_bytes();
        usize::from(byte) % PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of the same part as the first one.
    fn neighbours(of: &Recent<u32, usize>, count: usize) -> Vec<u32> {
        (0..).filter(|key| of.number(key) == of.number(&0)).take(count).collect()
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let recent = Recent::of_values(3 * PARTS);
        let keys = neighbours(&recent, 4);
        for key in &keys[..3] {
            recent.insert(*key, 1);
        }
        assert_eq!(recent.get(&keys[0]), Some(1), "and counts as used");
        recent.insert(keys[3], 4);
        assert_eq!(keys.iter().map(|key| recent.get(key)).collect::<Vec<_>>(), [Some(1), None, Some(1), Some(4)]);
    }

    #[test]
    fn a_newcomer_is_always_taken_in() {
        let recent = Recent::of_values(PARTS);
        for key in 0..10_000 {
            recent.insert(key, 1);
            assert_eq!(recent.get(&key), Some(1), "however often others were asked for");
            recent.get(&(key / 2));
        }
    }

    #[test]
    fn weight_is_counted_and_given_back() {
        let recent = Recent::of_weight(10 * PARTS, |value: &usize| *value);
        let keys = neighbours(&recent, 3);
        recent.insert(keys[0], 4);
        recent.insert(keys[0], 5);
        recent.insert(keys[1], 5);
        assert_eq!((recent.get(&keys[0]), recent.get(&keys[1])), (Some(5), Some(5)), "the one before counts no more");
        recent.forget(&keys[0]);
        recent.insert(keys[2], 5);
        assert_eq!((recent.get(&keys[0]), recent.get(&keys[1]), recent.get(&keys[2])), (None, Some(5), Some(5)));
        recent.insert(keys[2], 11);
        assert_eq!((recent.get(&keys[1]), recent.get(&keys[2])), (Some(5), None), "what has no room takes nobody's");
        let part = recent.part(&keys[0]).unwrap();
        assert_eq!((part.weight, part.values.len()), (5, 1));
    }
}
