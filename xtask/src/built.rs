// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the tests of a file are built at all: a module that nobody declares, or that a feature
//! turns off, proves nothing.

use crate::workspace::File;

/// What keeps the tests of a file out of their program; None: nothing does.
pub(crate) fn hindrance(path: &str, files: &[File]) -> Option<String> {
    let mut path = path;
    while let Some((folder, module)) = place(path) {
        let parents = [
            format!("{folder}.rs"),
            format!("{folder}/mod.rs"),
            format!("{folder}/lib.rs"),
            format!("{folder}/main.rs"),
        ];
        let beside = files.iter().filter(|file| file.path != path && file.path.ends_with(".rs"));
        let mut parent = beside.filter_map(|file| {
            let attributes = declaration(file, module, &parents, path)?;
            Some((file.path.as_str(), attributes))
        });
        let Some((parent, attributes)) = parent.next() else {
            return Some(format!("{path}: no file has `mod {module};`"));
        };
        if let Some(attribute) = attributes.iter().find(|line| is_condition(line)) {
            return Some(format!("{parent}: {attribute} turns off mod {module}"));
        }
        path = parent;
    }
    None
}

/// Whether a test may be left out where this attribute is.
pub(crate) fn is_condition(line: &str) -> bool {
    let is_off = line.starts_with("#[ignore") || line.starts_with("#[cfg");
    is_off && line != "#[cfg(test)]"
}

/// The folder in which a module is looked for and its name; None: it is the first of a program.
fn place(path: &str) -> Option<(&str, &str)> {
    let (folder, file) = path.rsplit_once('/')?;
    match file {
        "lib.rs" | "main.rs" => None,
        "mod.rs" => folder.rsplit_once('/'),
        _ if matches!(
            folder.rsplit('/').next(),
            Some("tests" | "bin" | "benches" | "examples")
        ) && !folder.contains("/src/") =>
        {
            None
        }
        file => Some((folder, file.strip_suffix(".rs")?)),
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
    let mut attributes = Vec::new();
    for line in file.text.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
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
            ("crates/a/tests/suite.rs", ""),
            ("crates/a/tests/login/main.rs", "mod names;\n"),
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
        for path in ["src/orphan.rs", "src/b/orphan.rs", "src/off.rs", "src/off/inner.rs"] {
            assert!(hindrance(&format!("crates/a/{path}"), &files).is_some(), "{path}");
        }
    }
}
