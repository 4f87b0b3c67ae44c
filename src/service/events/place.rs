//! Places in a feed, as cursors tell them.

use std::fmt;

use crate::store::feed::FeedMark;

/// What cursors of feeds are sealed for.
pub const DOMAIN: &str = "event cursor v1";

/// How much of an entry's hash a cursor carries. It shows that the entry is still the one that was read:
/// after a restore from before it, the cursor must not be taken for one of what was written since.
const PROOF_BYTES: usize = 8;

/// The head of an entry's hash.
#[must_use]
pub fn proof(hash: &[u8]) -> [u8; PROOF_BYTES] {
    let mut proof = [0; PROOF_BYTES];
    for (to, from) in proof.iter_mut().zip(hash) {
        *to = *from;
    }
    proof
}

/// Behind which event a reader stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before everything.
    Start,
    /// Behind this event.
    At {
        /// The entry.
        mark: FeedMark,
        /// The event in it.
        index: u32,
        /// See [`proof`].
        proof: [u8; PROOF_BYTES],
    },
}

impl Place {
    /// The number that a feed has to go beyond to have something new.
    #[must_use]
    pub const fn number(&self) -> i64 {
        match self {
            Self::Start => i64::MIN,
            Self::At { mark, .. } => mark.number,
        }
    }

    /// Reads what [`fmt::Display`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "start" {
            return Some(Self::Start);
        }
        let mut parts = text.split(':');
        let mark = FeedMark {
            number: parts.next()?.parse().ok()?,
            effect: parts.next()?.parse().ok()?,
            revision: parts.next()?.parse().ok()?,
        };
        let index = parts.next()?.parse().ok()?;
        let proof = hex::decode(parts.next()?).ok()?.try_into().ok()?;
        parts.next().is_none().then_some(Self::At { mark, index, proof })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::At { mark, index, proof } => {
                let effect = mark.effect.simple();
                write!(f, "{}:{effect}:{}:{index}:{}", mark.number, mark.revision, hex::encode(proof))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_their_text_and_keep_their_order() {
        let at = |number, index| Place::At {
            mark: FeedMark { number, effect: uuid::Uuid::from_u128(7), revision: 3 },
            index,
            proof: proof(&[9; 32]),
        };
        for place in [Place::Start, at(-1, 0), at(7, 3)] {
            assert_eq!(Place::parse(&place.to_string()), Some(place));
        }
        assert!(Place::Start < at(-1, 0) && at(-1, 9) < at(0, 0) && at(0, 0) < at(0, 1));
        for nonsense in ["", "x", "1:2:3", "1:00000000000000000000000000000007:3:0:09:1"] {
            assert_eq!(Place::parse(nonsense), None);
        }
    }
}
