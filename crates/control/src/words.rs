// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which word may have been meant.

/// The one of `known` that `word` was meant to be, if one is near enough: a letter more, less or
/// other in three, two neighbours exchanged, `-` for `_`, another case.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = plain(word).collect();
    let near = known.into_iter().map(|candidate| {
        let letters: Vec<char> = plain(candidate).collect();
        (distance(&word, &letters), candidate)
    });
    let (distance, meant) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= word.len().div_ceil(3)).then_some(meant)
}

/// One thing or several: `1 reactor`, `2 reactors`.
#[must_use]
pub fn count(number: impl Into<u64>, thing: &str) -> String {
    match number.into() {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

fn plain(word: &str) -> impl Iterator<Item = char> {
    word.chars().flat_map(char::to_lowercase).map(|c| if c == '_' { '-' } else { c })
}

/// How many letters are to be put in, taken away, changed or exchanged with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, to) in b.iter().enumerate() {
            let at =
                |cells: &[usize], index: usize| cells.get(index).copied().unwrap_or(usize::MAX);
            let changed = at(&last, column).saturating_add(usize::from(from != to));
            let mut best = changed.min(at(&last, column + 1).saturating_add(1));
            best = best.min(at(&next, column).saturating_add(1));
            let previous = |cells: &[char], index: usize| {
                index.checked_sub(1).and_then(|i| cells.get(i).copied())
            };
            if previous(a, row) == Some(*to) && previous(b, column) == Some(*from) {
                best = best.min(at(&before, column - 1).saturating_add(1));
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["reactors", "listen", "chap-user", "auth"];
        for (word, meant) in [
            ("reactor", Some("reactors")),
            ("raectors", Some("reactors")),
            ("Listen", Some("listen")),
            ("chap_user", Some("chap-user")),
            ("chapuser", Some("chap-user")),
            ("lissen", Some("listen")),
            ("timeout", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest("a", []), None);
    }

    #[test]
    fn things_are_counted() {
        assert_eq!(
            [0_u64, 1, 2].map(|n| count(n, "reactor")),
            ["0 reactors", "1 reactor", "2 reactors"]
        );
    }
}
