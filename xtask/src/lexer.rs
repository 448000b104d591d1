// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Splits Rust source into code and comments, so that a rule about one is not fooled by the other.

/// Source with the same lines twice: code with comments and literals blanked, and comments alone.
#[derive(Debug)]
pub(crate) struct Split {
    /// Lines of code; contents of strings, characters and comments are spaces.
    pub(crate) code: Vec<String>,
    /// Lines of comments; code and literals are left out.
    pub(crate) comments: Vec<String>,
}

/// What the characters at a position belong to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits `source`; never fails, whatever it is given.
pub(crate) fn split(source: &str) -> Split {
    let characters: Vec<char> = source.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut at = 0;
    while at < characters.len() {
        let (kind, length) = next(&characters, at);
        for &character in characters.iter().skip(at).take(length) {
            let line_end = character == '\n';
            code.push(if kind == Kind::Code || line_end { character } else { ' ' });
            if kind == Kind::Comment || line_end {
                comments.push(character);
            }
        }
        at += length;
    }
    let lines = |text: &str| text.split('\n').map(str::to_owned).collect();
    Split { code: lines(&code), comments: lines(&comments) }
}

/// Kind and length (at least 1) of what begins at `at`.
fn next(text: &[char], at: usize) -> (Kind, usize) {
    let rest = text.get(at..).unwrap_or_default();
    let after_word = at > 0 && text.get(at - 1).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    match rest {
        ['/', '/', ..] => (Kind::Comment, rest.iter().take_while(|c| **c != '\n').count()),
        ['/', '*', ..] => (Kind::Comment, block_comment(rest)),
        ['"', ..] => (Kind::Literal, quoted(rest, '"')),
        ['r', '"' | '#', ..] if !after_word => raw_string(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !after_word => raw_string(rest, 2),
        ['\'', '\\', ..] => (Kind::Literal, quoted(rest, '\'')),
        ['\'', _, '\'', ..] => (Kind::Literal, 3),
        _ => (Kind::Code, 1),
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match rest.get(at..) {
            Some(['/', '*', ..]) => (depth, at) = (depth + 1, at + 2),
            Some(['*', '/', ..]) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

fn quoted(rest: &[char], mark: char) -> usize {
    let mut at = 1;
    while let Some(&character) = rest.get(at) {
        at += if character == '\\' { 2 } else { 1 };
        if character == mark {
            break;
        }
    }
    at.min(rest.len())
}

/// A raw string whose hashes begin after `prefix` characters, or a raw identifier.
fn raw_string(rest: &[char], prefix: usize) -> (Kind, usize) {
    let hashes = rest.iter().skip(prefix).take_while(|c| **c == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return (Kind::Code, 1);
    }
    let mut at = prefix + hashes + 1;
    while let Some(&character) = rest.get(at) {
        at += 1;
        let closing = rest.iter().skip(at).take(hashes).filter(|c| **c == '#').count();
        if character == '"' && closing == hashes {
            return (Kind::Literal, at + hashes);
        }
    }
    (Kind::Literal, rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        split(source).code.join("\n")
    }

    #[test]
    fn comments_are_apart_from_code() {
        let both = split("let a = 1; // unsafe { }\nlet b /* x /* y */ z */ = 2;\n");
        assert_eq!(both.code[0].trim_end(), "let a = 1;");
        assert_eq!(both.code[1].replace(' ', ""), "letb=2;");
        assert_eq!(both.comments[0], "// unsafe { }");
        assert_eq!(both.comments[1], "/* x /* y */ z */");
    }

    #[test]
    fn literals_hide_what_looks_like_code() {
        assert!(!code(r#"let a = "unsafe { // }"; b"#).contains("unsafe"));
        assert!(code(r#"let a = "\"//"; tail"#).contains("tail"));
        assert!(!code(r###"let a = r#"un"safe"#; tail"###).contains("safe"));
        assert!(code(r###"let a = r#"un"safe"#; tail"###).contains("tail"));
        assert!(!code("let a = br\"unsafe\";").contains("unsafe"));
    }

    #[test]
    fn lifetimes_are_not_characters() {
        let text = code("fn f<'a>(x: &'a str) -> char { 'x' } // '");
        assert!(text.contains("<'a>(x: &'a str) -> char {"));
        assert!(!code("let q = '\\''; let r = '\"'; tail").contains('"'));
        assert!(code("let q = '\\''; let r = '\"'; tail").contains("tail"));
    }

    #[test]
    fn unfinished_source_is_no_trouble() {
        for text in ["\"", "r#\"", "/*", "'\\", "b'", "r#", "/* /*"] {
            assert_eq!(split(text).code.len(), 1, "{text}");
        }
    }

    #[test]
    fn raw_identifiers_stay_code() {
        assert!(code("let r#type = 1;").contains("r#type"));
    }
}
