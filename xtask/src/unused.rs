// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dependencies that a manifest declares and no source names.

use crate::lexer;
use crate::metadata::Declared;
use crate::metadata::Package;
use crate::workspace::File;
use std::path::Path;

/// Each dependency of each member that none of its sources names; `root` is the folder that the
/// paths of `files` start from.
///
/// What a program is built with must be named below `src` or in `build.rs`; what its tests are, in
/// any source or in the code of a doc comment.
pub(crate) fn problems(packages: &[Package], files: &[File], root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|package| package.member) {
        let sources = Sources::of(package, files, root);
        for declared in &package.declared {
            let called = name_in_sources(declared, packages);
            if !sources.name(&called, declared.dev) {
                let (package, name) = (&package.name, &declared.name);
                problems.push(format!("{package}: depends on {name}, which no source of it names"));
            }
        }
    }
    problems
}

/// The code of one package.
struct Sources {
    built: Vec<String>,
    /// Tests, examples, and doc comments.
    beside: Vec<String>,
}

impl Sources {
    fn of(package: &Package, files: &[File], root: &Path) -> Self {
        let (mut built, mut beside) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
            let path = root.join(&file.path);
            let Ok(place) = path.strip_prefix(&package.folder) else { continue };
            let split = lexer::split(&file.text);
            beside.extend(split.comments);
            match place.starts_with("src") || place == Path::new("build.rs") {
                true => built.extend(split.code),
                false => beside.extend(split.code),
            }
        }
        Self { built, beside }
    }

    fn name(&self, called: &str, in_tests_too: bool) -> bool {
        let beside = if in_tests_too { self.beside.as_slice() } else { &[] };
        self.built.iter().chain(beside).any(|line| names_crate(line, called))
    }
}

/// How the sources of its user call a dependency.
fn name_in_sources(declared: &Declared, packages: &[Package]) -> String {
    let library = || packages.iter().find(|package| package.name == declared.name)?.library.clone();
    let called = declared.rename.clone().or_else(library).unwrap_or_else(|| declared.name.clone());
    called.replace('-', "_")
}

/// Whether `line` has a path that begins with the crate, or brings it into scope. A variable of the
/// same name is none, nor is a module of it (`crate::buf::`).
fn names_crate(line: &str, called: &str) -> bool {
    line.match_indices(called).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + called.len()..]);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if before.ends_with(is_word) || after.starts_with(is_word) {
            return false;
        }
        let inner = before.strip_suffix("::").is_some_and(|path| path.ends_with(is_word));
        let brought = ["use", "crate"].iter().any(|word| before.trim_end().ends_with(word));
        !inner && (after.starts_with("::") || brought)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn package(name: &str, library: &str, declared: Vec<Declared>) -> Package {
        Package {
            name: name.to_owned(),
            member: !declared.is_empty(),
            dependencies: Vec::new(),
            declared,
            library: Some(library.to_owned()),
            folder: PathBuf::from("/a/crates").join(name),
            targets: Vec::new(),
        }
    }

    fn unused(dependency: Declared, path: &str, text: &str) -> usize {
        let packages = [package("user", "user", vec![dependency]), package("md-5", "md5", vec![])];
        let file = File { path: path.to_owned(), text: text.to_owned() };
        problems(&packages, &[file], Path::new("/a")).len()
    }

    fn md5(dev: bool) -> Declared {
        Declared { name: "md-5".to_owned(), rename: None, dev }
    }

    #[test]
    fn what_no_source_names_is_told() {
        let source = "crates/user/src/lib.rs";
        assert_eq!(unused(md5(false), source, "use md5::Digest;\n"), 0);
        assert_eq!(unused(md5(false), source, "let a = ::md5::new();\n"), 0);
        assert_eq!(unused(md5(false), source, "pub use md5;\n"), 0);
        assert_eq!(unused(md5(false), source, "let md5 = 1; x.md5();\n"), 1);
        assert_eq!(unused(md5(false), source, "use crate::md5::Digest;\n"), 1);
        assert_eq!(unused(md5(false), source, "// md5::Digest\n"), 1);
        assert_eq!(unused(md5(false), source, "use a_md5::Digest;\n"), 1);
        assert_eq!(unused(md5(false), "crates/other/src/lib.rs", "use md5::Digest;\n"), 1);
    }

    #[test]
    fn a_dependency_goes_by_what_it_is_called_here() {
        let renamed = || Declared { rename: Some("a-b".to_owned()), ..md5(false) };
        assert_eq!(unused(renamed(), "crates/user/src/lib.rs", "use a_b::Digest;\n"), 0);
        assert_eq!(unused(renamed(), "crates/user/src/lib.rs", "use md5::Digest;\n"), 1);
        let unknown = || Declared { name: "x-y".to_owned(), ..md5(false) };
        assert_eq!(unused(unknown(), "crates/user/src/lib.rs", "x_y::f();\n"), 0);
    }

    #[test]
    fn what_tests_alone_name_is_for_tests_alone() {
        for (path, text) in [
            ("crates/user/tests/all.rs", "use md5::Digest;\n"),
            ("crates/user/examples/one.rs", "use md5::Digest;\n"),
            ("crates/user/src/lib.rs", "/// let a = md5::new();\n"),
        ] {
            assert_eq!(unused(md5(true), path, text), 0, "{path}");
            assert_eq!(unused(md5(false), path, text), 1, "{path}");
        }
    }
}
