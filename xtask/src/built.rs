// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the tests of a file are built at all: a module that nobody declares, or that a feature
//! turns off, proves nothing.

use crate::workspace::File;

/// What keeps the tests of a file out of their program; None: nothing does.
pub(crate) fn hindrance(path: &str, files: &[File]) -> Option<String> {
    let mut path = path;
    loop {
        let own = files.iter().find(|file| file.path == path);
        let own = own.filter(|file| file.text.contains("#![cfg("));
        let mut inner = own.iter().flat_map(|file| file.text.lines().map(str::trim));
        if let Some(line) = inner.find(|line| line.starts_with("#![cfg(")) {
            return Some(format!("{path}: {line} turns it off"));
        }
        let (_, module) = place(path, files)?;
        let Some((parent, attributes)) = parent(path, files) else {
            return Some(format!("{path}: no file has `mod {module};`"));
        };
        if let Some(attribute) = attributes.iter().find(|line| is_condition(line)) {
            return Some(format!("{parent}: {attribute} turns off mod {module}"));
        }
        path = parent;
    }
}

/// Whether a file is of tests alone: none of it is in what is handed out.
pub(crate) fn is_of_tests(path: &str, files: &[File]) -> bool {
    let mut path = path;
    while let Some((parent, attributes)) = parent(path, files) {
        if attributes.contains(&"#[cfg(test)]") {
            return true;
        }
        path = parent;
    }
    false
}

/// The file that declares this one, and the attributes of the declaration.
fn parent<'a>(path: &str, files: &'a [File]) -> Option<(&'a str, Vec<&'a str>)> {
    let (folder, module) = place(path, files)?;
    let mut parents = vec![
        format!("{folder}.rs"),
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/main.rs"),
    ];
    if is_folder_of_programs(folder) {
        let beside = files.iter().map(|file| file.path.as_str());
        let beside = beside.filter(|other| other.rsplit_once('/').is_some_and(|of| of.0 == folder));
        parents.extend(beside.filter(|other| place(other, files).is_none()).map(str::to_owned));
    }
    let declared = format!("mod {module};");
    let beside = files.iter().filter(|file| file.path != path && file.path.ends_with(".rs"));
    let beside = beside.filter(|file| file.text.contains(&declared));
    let mut parent = beside.filter_map(|file| {
        let attributes = declaration(file, module, &parents, path)?;
        Some((file.path.as_str(), attributes))
    });
    parent.next()
}

/// Whether a test may be left out where this attribute is.
pub(crate) fn is_condition(line: &str) -> bool {
    let is_off = line.starts_with("#[cfg") || line.starts_with("#[") && line.contains("#[ignore");
    is_off && line != "#[cfg(test)]"
}

/// Whether each file there is a program, unless a manifest says otherwise.
fn is_folder_of_programs(folder: &str) -> bool {
    let last = folder.rsplit('/').next();
    matches!(last, Some("tests" | "bin" | "benches" | "examples")) && !folder.contains("/src/")
}

/// Whether a file in such a folder is a program: where its package names them, only those are.
fn is_program(folder: &str, name: &str, files: &[File]) -> bool {
    let manifest = folder.rsplit_once('/').map(|(package, _)| format!("{package}/Cargo.toml"));
    let manifest = files.iter().find(|file| Some(&file.path) == manifest.as_ref());
    let Some(text) = manifest.map(|file| file.text.as_str()) else { return true };
    let has_all = !text.contains("autotests = false") || !folder.ends_with("/tests");
    has_all || text.lines().any(|line| line == format!("name = \"{name}\""))
}

/// The folder in which a module is looked for and its name; None: it is the first of a program.
fn place<'a>(path: &'a str, files: &[File]) -> Option<(&'a str, &'a str)> {
    let (folder, file) = path.rsplit_once('/')?;
    match file {
        "lib.rs" | "main.rs" => None,
        "mod.rs" => folder.rsplit_once('/'),
        file => {
            let module = file.strip_suffix(".rs")?;
            let is_first = is_folder_of_programs(folder) && is_program(folder, module, files);
            (!is_first).then_some((folder, module))
        }
    }
}

/// The attributes of the line by which a file declares a module, if it does.
fn declaration<'a>(
    file: &'a File,
    module: &str,
    parents: &[String],
    path: &str,
) -> Option<Vec<&'a str>> {
    // Also as an inner one of a module that stands in the file itself.
    let is_around = |(above, inner): (&str, &str)| {
        file.path == format!("{above}.rs") && file.text.contains(&format!("mod {inner} {{"))
    };
    let folder = path.rsplit_once('/').and_then(|(folder, _)| folder.rsplit_once('/'));
    let may_name = parents.contains(&file.path) || folder.is_some_and(is_around);
    let (mut attributes, mut goes_on) = (Vec::new(), false);
    for line in file.text.lines().map(str::trim) {
        let begins = line.starts_with("#[");
        if begins {
            attributes.push(line);
        }
        // A long one has lines of its own.
        if begins || goes_on {
            goes_on = !line.contains(']');
            continue;
        }
        let declared = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        if declared.is_some_and(|(_, name)| name == module) {
            let elsewhere = attributes.iter().find_map(|line| line.strip_prefix("#[path = \""));
            let is_meant = match elsewhere.and_then(|rest| rest.strip_suffix("\"]")) {
                Some(elsewhere) => {
                    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    format!("{folder}/{elsewhere}") == path
                }
                None => may_name,
            };
            if is_meant {
                return Some(attributes);
            }
        }
        attributes.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_built_if_all_above_it_are() {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = [
            (
                "crates/a/src/lib.rs",
                "mod b;\npub(crate) mod c;\n#[cfg(feature = \"x\")]\nmod off;\n",
            ),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/tests.rs", "#[path = \"tests/more.rs\"]\nmod more;\n"),
            ("crates/a/src/c/mod.rs", "mod d;\n"),
            ("crates/a/src/c/d.rs", "#[cfg(test)]\nmod tests {\n    mod e;\n}\n"),
            ("crates/a/src/off.rs", "mod inner;\n"),
            ("crates/b/src/lib.rs", "#[cfg(all(\n    unix,\n    feature = \"x\",\n))]\nmod off;\n"),
            ("crates/b/src/off.rs", ""),
            ("crates/a/tests/suite.rs", ""),
            ("crates/a/tests/login/main.rs", "mod names;\n"),
            ("crates/a/src/inside.rs", "#![cfg(any())]\n#[test]\nfn a() {}\n"),
            ("crates/a/src/main.rs", "mod inside;\n#[cfg(test)]\nmod fake;\n"),
            ("crates/a/src/fake.rs", "pub(crate) mod inner;\n"),
            ("crates/c/Cargo.toml", "autotests = false\n[[test]]\nname = \"suite\"\n"),
            ("crates/c/tests/suite.rs", "mod login;\n"),
            ("crates/c/tests/login.rs", ""),
        ]
        .iter()
        .map(file)
        .collect();
        for path in
            ["b.rs", "b/tests.rs", "b/tests/more.rs", "c/mod.rs", "c/d.rs", "c/d/tests/e.rs"]
        {
            assert_eq!(hindrance(&format!("crates/a/src/{path}"), &files), None, "{path}");
        }
        for path in ["tests/suite.rs", "tests/login/names.rs", "tests/login/main.rs"] {
            assert_eq!(hindrance(&format!("crates/a/{path}"), &files), None, "{path}");
        }
        for path in
            ["src/orphan.rs", "src/b/orphan.rs", "src/off.rs", "src/off/inner.rs", "src/inside.rs"]
        {
            assert!(hindrance(&format!("crates/a/{path}"), &files).is_some(), "{path}");
        }
        assert!(hindrance("crates/b/src/off.rs", &files).is_some(), "on several lines");
        // A package that names its programs has no others.
        assert_eq!(hindrance("crates/c/tests/suite.rs", &files), None);
        assert_eq!(hindrance("crates/c/tests/login.rs", &files), None);
        assert!(hindrance("crates/c/tests/forgotten.rs", &files).is_some());
        for (path, wanted) in [
            ("crates/a/src/fake.rs", true),
            ("crates/a/src/fake/inner.rs", true),
            ("crates/a/src/b/tests.rs", true),
            ("crates/a/src/b.rs", false),
            ("crates/a/src/c/d.rs", false),
            ("crates/a/src/lib.rs", false),
        ] {
            assert_eq!(is_of_tests(path, &files), wanted, "{path}");
        }
    }
}
