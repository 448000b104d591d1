// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines and pumps do no I/O of their own: what they want of the system goes through `Port`, so
//! that the simulator can draw it, and nobody else's code runs inside them (ARCHITECTURE.md).

use crate::lexer;
use crate::workspace::File;

/// Where everything goes through a port.
const BEHIND_PORTS: &[&str] = &[
    "crates/ether/src/",
    "crates/iscsi/src/",
    "crates/mover/src/",
    "crates/rdma/src/",
    "crates/scsi/src/",
    "crates/target-node/src/pump.rs",
    "crates/target-node/src/pump/",
    "crates/initiator/src/pump.rs",
    "crates/initiator/src/link.rs",
    "crates/initiator/src/link/",
];

/// What asks the system, or waits for it.
const SYSTEM: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::os::unix",
    "std::process",
    "std::sync::Condvar",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "libc::",
    "rustix::",
];

/// The traits whose code may be foreign: of stores, which give work and do none, of those who keep
/// states, which a port calls, of those who connect, in threads of their own, and of adapters,
/// which take posts and are shown memory as a pool gives some.
const FOREIGN: &[&str] =
    &["Adapter", "Asking", "Connector", "Foreign", "Keeper", "Registry", "Store"];

/// Of all files; tests may do what they like.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    files.iter().filter(|file| is_behind(&file.path)).flat_map(of_file).collect()
}

fn is_behind(path: &str) -> bool {
    BEHIND_PORTS.iter().any(|place| path.starts_with(place))
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
}

fn of_file(file: &File) -> Vec<String> {
    let code = lexer::split(&file.text).code;
    let before_tests = code.iter().take_while(|line| line.trim() != "#[cfg(test)]");
    let mut problems = Vec::new();
    for (line, number) in before_tests.zip(1..) {
        for asked in SYSTEM.iter().filter(|asked| line.contains(*asked)) {
            problems.push(format!("{}:{number}: {asked}: through a Port only", file.path));
        }
        for name in upcalls(line).filter(|name| !FOREIGN.contains(name)) {
            problems.push(format!("{}:{number}: dyn {name}: who calls whom?", file.path));
        }
    }
    problems
}

/// The traits, without their paths, of whose objects a line speaks.
fn upcalls(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("dyn ").filter_map(|(at, word)| {
        let before = line.get(..at)?.chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let path = line.get(at + word.len()..)?;
        let path = path.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next()?;
        path.rsplit("::").next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(path: &str, text: &str) -> Vec<String> {
        problems(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn the_system_is_asked_through_ports() {
        let text = "use std::fs;\nfn f() { std::thread::sleep(x) }\n";
        assert_eq!(judged("crates/target-node/src/pump/jobs.rs", text).len(), 2);
        assert_eq!(judged("crates/target-node/src/pump.rs", text).len(), 2);
        assert_eq!(judged("crates/target-node/src/stores.rs", text), [""; 0]);
        assert_eq!(judged("crates/target-node/src/pump/jobs/tests.rs", text), [""; 0]);
        let tested = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(judged("crates/scsi/src/lun.rs", tested), [""; 0]);
    }

    #[test]
    fn nobody_is_called_back() {
        let path = "crates/scsi/src/lun.rs";
        assert_eq!(judged(path, "fn f(store: &dyn Store, k: Arc<dyn store::Store>) {}\n"), [""; 0]);
        assert_eq!(judged(path, "fn f(tell: &mut dyn FnMut(u32)) {}\n").len(), 1);
        assert_eq!(judged(path, "fn f(store: &dyn Store, k: Arc<dyn a::Upcall>) {}\n").len(), 1);
        assert_eq!(judged(path, "// a dyn Upcall\nfn dyn_of() {}\n"), [""; 0]);
    }
}
