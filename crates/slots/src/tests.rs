// SPDX-License-Identifier: Apache-2.0 OR MIT

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u32, u32);

impl Id for Key {
    fn new(index: u32, generation: u32) -> Self {
        Self(index, generation)
    }

    fn index(self) -> u32 {
        self.0
    }

    fn generation(self) -> u32 {
        self.1
    }
}

#[test]
fn a_stale_id_finds_nothing() {
    let mut table = Slots::<Key, char>::default();
    let first = table.insert('a');
    assert_eq!(table.remove(first), Some('a'));
    let second = table.insert('b');
    assert_eq!(first.index(), second.index());
    assert_eq!(table.get(first), None);
    assert_eq!(table.remove(first), None);
    assert_eq!(table.get(second), Some(&'b'));
    assert_eq!(table.at(0), Some((second, &'b')));
}

#[test]
fn a_full_table_takes_nothing() {
    let mut table = Slots::<Key, u8>::new(2);
    let (first, _) = (table.insert(1), table.insert(2));
    assert_eq!(table.next_id(), None);
    assert_eq!(table.try_insert_with(|_| unreachable!("there is no place")), None);
    table.remove(first);
    assert_eq!(table.next_id(), Some(Key(0, 1)));
}

#[test]
fn generations_begin_anew_where_their_bits_end() {
    let mut table = Slots::<Key, ()>::new(1).with_generation_bits(2);
    for generation in [0, 1, 2, 3, 0] {
        let id = table.insert(());
        assert_eq!(id, Key(0, generation));
        table.remove(id);
    }
}

/// As [`Key`], by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aged(u32, u32);

impl Id for Aged {
    const GENERATION_BITS: u32 = 2;
    const BY_AGE: bool = true;

    fn new(index: u32, generation: u32) -> Self {
        Self(index, generation)
    }

    fn index(self) -> u32 {
        self.0
    }

    fn generation(self) -> u32 {
        self.1
    }
}

#[test]
fn ids_tell_their_age() {
    let mut table = Slots::<Aged, u8>::default();
    let (first, second) = (table.insert(1), table.insert(2));
    assert_eq!((first, second), (Aged(0, 1), Aged(1, 2)));
    assert_eq!(table.remove(first), Some(1));
    assert_eq!(table.next_id(), Some(Aged(0, 3)));
    assert_eq!((table.insert(3), table.get(first)), (Aged(0, 3), None));
    assert_eq!(table.insert(4), Aged(2, 0));
    table.check();
}

#[test]
fn entries_are_kept_by_the_ids_of_others() {
    let mut table = ById::new(10);
    *table.open(Key(4, 7), || 'a').unwrap() = 'b';
    assert_eq!(table.open(Key(4, 7), || 'c'), Some(&mut 'b'));
    assert_eq!(
        (table.get(Key(4, 6)), table.get(Key(3, 0)), table.get(Key(9, 0))),
        (None, None, None)
    );
    assert_eq!(table.at_mut(4), Some((Key(4, 7), &mut 'b')));
    assert_eq!(table.iter().collect::<Vec<_>>(), [(Key(4, 7), &'b')]);
    assert_eq!((table.remove(Key(4, 6)), table.remove(Key(4, 7))), (None, Some('b')));
    assert_eq!(table.open(Key(4, 8), || 'd'), Some(&mut 'd'));
    assert_eq!(table.len(), 1);
    assert_eq!((table.discard(Key(4, 7)), table.discard(Key(4, 8))), (false, true));
    assert!(table.is_empty());
    table.check();
}

proptest! {
    /// Against a list of pairs.
    #[test]
    fn a_table_is_what_was_put_in_and_not_taken_out(
        steps in prop::collection::vec((any::<bool>(), 0..20usize), 0..200),
    ) {
        let mut table = Slots::<Key, usize>::new(8);
        let (mut live, mut gone) = (Vec::new(), Vec::new());
        for (number, (insert, at)) in steps.into_iter().enumerate() {
            if insert {
                let next = table.next_id();
                let id = table.try_insert_with(|_| number);
                prop_assert_eq!(id, next);
                prop_assert_eq!(id.is_some(), live.len() < 8);
                live.extend(id.map(|id| (id, number)));
            } else if !live.is_empty() {
                let (id, value) = live.remove(at % live.len());
                match at % 2 {
                    0 => prop_assert_eq!(table.remove(id), Some(value)),
                    _ => prop_assert!(table.discard(id)),
                }
                prop_assert!(!table.discard(id));
                gone.push(id);
            }
            table.check();
            prop_assert_eq!(table.len(), live.len());
            prop_assert!(live.iter().all(|(id, value)| table.get(*id) == Some(value)));
            prop_assert!(gone.iter().all(|id| table.get(*id).is_none()));
            let mut sorted = live.clone();
            sorted.sort_unstable_by_key(|(id, _)| id.index());
            prop_assert!(table.iter().map(|(id, value)| (id, *value)).eq(sorted));
        }
    }
}
