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

/// Whether a letter leaves nothing to see, begins another line, or turns the direction of others:
/// controls, blanks but the plain one, and what Unicode 16 has as `Default_Ignorable_Code_Point`,
/// `Bidi_Control`, or annotation.
#[must_use]
pub fn is_hidden(letter: char) -> bool {
    match letter {
        ' ' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        // A pattern of Braille without a dot.
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control() || other.is_whitespace(),
    }
}

/// A text that others chose, on one line: each hidden letter is written as a number.
#[must_use]
pub fn shown(text: &str) -> String {
    let shown = text.chars().map(|letter| match is_hidden(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    });
    shown.collect()
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
    fn what_nobody_sees_is_hidden() {
        let hidden = "\0\n\u{7f}\u{9b}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180f}\
            \u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\
            \u{2066}\u{2069}\u{206f}\u{2800}\u{3000}\u{3164}\u{a0}\u{fe00}\u{fe0f}\u{feff}\
            \u{ffa0}\u{fff0}\u{fff9}\u{fffb}\u{1bca0}\u{1d173}\u{e0001}\u{e0020}\u{e0100}";
        for letter in hidden.chars() {
            assert!(is_hidden(letter), "{letter:?}");
        }
        for letter in
            "aZ ~\"\\\u{e9}\u{5d0}\u{627}\u{301}\u{4e00}\u{d55c}\u{1f600}\u{2027}\u{2010}".chars()
        {
            assert!(!is_hidden(letter), "{letter:?}");
        }
        assert_eq!(shown("a\u{200b}b\n\u{61c}c d"), "a\\u{200b}b\\n\\u{61c}c d");
    }

    #[test]
    fn things_are_counted() {
        assert_eq!(
            [0_u64, 1, 2].map(|n| count(n, "reactor")),
            ["0 reactors", "1 reactor", "2 reactors"]
        );
    }
}
