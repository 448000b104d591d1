// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages as who asks over HTTP can follow them: fields of orders, keys of the configuration and
//! paths of the API in the place of options and commands.

use control::admin::Refused;
use control::admin::Reply;

/// Commands that messages propose, and what is the same in the API; those that begin as others do
/// come first.
const COMMANDS: [(&str, &str); 10] = [
    ("lunwire alua", "/api/v1/port-groups"),
    ("lunwire limit", "limits of /api/v1/status"),
    ("lunwire lun add", "add-lun"),
    ("lunwire lun remove", "remove-lun"),
    ("lunwire lun resize", "resize-lun"),
    ("lunwire reload", "reload"),
    ("lunwire serve --config FILE", "a start with a configuration file"),
    ("lunwire serve", "the daemon"),
    ("lunwire sessions", "/api/v1/sessions"),
    ("lunwire status", "/api/v1/status"),
];

/// Options whose fields are not called as they are.
const FIELDS: [(&str, &str); 4] = [
    ("destroy-data", "destroy_data"),
    ("dry-run", "dry_run"),
    ("space-warning", "space_warning"),
    ("timeout", "timeout_s"),
];

/// An answer whose advice is for who asks over HTTP.
pub(super) fn for_programs(mut reply: Reply) -> Reply {
    match &mut reply {
        Reply::Error { message } => *message = said(message),
        Reply::Reloaded(told) => {
            told.refused.iter_mut().for_each(|Refused { why, .. }| *why = said(why));
            all_said(&mut told.warnings);
        }
        Reply::Added { warnings, .. }
        | Reply::Resized { warnings, .. }
        | Reply::Removed { warnings, .. } => all_said(warnings),
        _ => {}
    }
    reply
}

fn all_said(texts: &mut [String]) {
    texts.iter_mut().for_each(|text| *text = said(text));
}

/// Whatever layer has written the text: an option of a command is a field of an order, and one of
/// the daemon is a key of its configuration.
fn said(text: &str) -> String {
    let text =
        COMMANDS.iter().fold(text.to_owned(), |text, (ours, theirs)| text.replace(ours, theirs));
    let (mut told, mut rest) = (String::new(), &*text);
    while let Some(at) = rest.find("--") {
        let (before, from) = rest.split_at(at);
        let word = from.trim_start_matches('-');
        let is_name = |one: char| one.is_ascii_lowercase() || one == '-';
        let (name, behind) = word.split_at(word.find(|one| !is_name(one)).unwrap_or(word.len()));
        let is_begin = before.chars().next_back().is_none_or(|one| " (`".contains(one));
        told.push_str(before);
        if is_begin && !name.is_empty() {
            let field = FIELDS.iter().find(|(option, _)| *option == name);
            told.push_str(field.map_or(name, |(_, field)| field));
        } else {
            told.push_str(from.get(..from.len() - behind.len()).unwrap_or_default());
        }
        rest = behind;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_as_fields_and_keys() {
        for (text, told) in [
            ("lost; try: --destroy-data, or more", "lost; try: destroy_data, or more"),
            ("--number 99999: 0 to 9 is right", "number 99999: 0 to 9 is right"),
            ("--initiator x: no name", "initiator x: no name"),
            ("--space-warning 3: no size", "space_warning 3: no size"),
            ("block = 4096 (lunwire lun add: --block 4096)", "block = 4096 (add-lun: block 4096)"),
            ("the sandbox (--sandbox) or --sandbox=auto", "the sandbox (sandbox) or sandbox=auto"),
            ("try: lunwire serve --config FILE", "try: a start with a configuration file"),
            // What others have chosen stays as it is.
            ("iqn.2026-01.com.example:a--b", "iqn.2026-01.com.example:a--b"),
            ("file:/srv/--x -- ---", "file:/srv/--x -- ---"),
            ("a\u{e9} --lun \u{e9}", "a\u{e9} lun \u{e9}"),
        ] {
            assert_eq!(said(text), told);
        }
    }

    #[test]
    fn all_advice_of_an_answer_is_told_so() {
        let message = "no session 7; try: lunwire sessions".to_owned();
        let Reply::Error { message } = for_programs(Reply::Error { message }) else {
            panic!("of another kind")
        };
        assert_eq!(message, "no session 7; try: /api/v1/sessions");
        let why = "size: try: lunwire lun resize first".to_owned();
        let refused = vec![Refused { what: "LUN 0".into(), why }];
        let warnings = vec!["it is for nobody; try: --http".to_owned()];
        let told = control::admin::Reloaded { refused, warnings, ..Default::default() };
        let Reply::Reloaded(told) = for_programs(Reply::Reloaded(told)) else {
            panic!("of another kind")
        };
        assert_eq!(told.refused[0].why, "size: try: resize-lun first");
        assert_eq!(told.warnings, ["it is for nobody; try: http"]);
    }
}
