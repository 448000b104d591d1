// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that a message proposes reach the daemon that it is about.

use std::path::Path;

const PROGRAM: &str = "lunwire ";

/// Commands that ask a daemon; those that begin as others do come first.
const ASKING: [&str; 14] = [
    "alua set",
    "alua",
    "dump",
    "limit",
    "lun add",
    "lun remove",
    "lun rescan",
    "lun resize",
    "lun snapshot",
    "reload",
    "session drop",
    "session logout",
    "sessions",
    "status",
];

/// `text` with the socket in each command that asks a daemon; None: it is at its default place.
pub(crate) fn reaching(text: &str, socket: Option<&Path>) -> String {
    let Some(socket) = socket else { return text.to_owned() };
    let option = format!(" --control-socket {}", socket.display());
    let (mut told, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(PROGRAM) {
        let (before, from) = rest.split_at(at + PROGRAM.len());
        let is_whole = |behind: &str| !behind.starts_with(char::is_alphanumeric);
        let asks = |verb: &&&str| from.strip_prefix(**verb).is_some_and(is_whole);
        let (verb, behind) = from.split_at(ASKING.iter().find(asks).map_or(0, |verb| verb.len()));
        told.push_str(before);
        told.push_str(verb);
        if !verb.is_empty() {
            told.push_str(&option);
        }
        rest = behind;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_asks_names_the_socket() {
        let reaching = |text| reaching(text, Some(Path::new("/run/a")));
        for (text, told) in [
            ("x; try: lunwire status", "x; try: lunwire status --control-socket /run/a"),
            ("lunwire sessions, or", "lunwire sessions --control-socket /run/a, or"),
            ("lunwire alua set it", "lunwire alua set --control-socket /run/a it"),
            (
                "try: lunwire lun remove 2 --target T, then lunwire lun add",
                "try: lunwire lun remove --control-socket /run/a 2 --target T, then lunwire lun \
                 add --control-socket /run/a",
            ),
            ("lunwire dump > a", "lunwire dump --control-socket /run/a > a"),
            ("lunwire limit", "lunwire limit --control-socket /run/a"),
            ("lunwire reload, then", "lunwire reload --control-socket /run/a, then"),
            ("lunwire copy it; lunwire statuses", "lunwire copy it; lunwire statuses"),
        ] {
            assert_eq!(reaching(text), told);
        }
        assert_eq!(super::reaching("lunwire status", None), "lunwire status");
    }
}
