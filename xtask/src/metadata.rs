// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `cargo metadata` says, reduced to what the tasks need.

use crate::workspace;
use anyhow::Context;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use std::path::PathBuf;

/// A package of the build, ours or foreign.
#[derive(Debug)]
pub(crate) struct Package {
    /// Name in its manifest.
    pub(crate) name: String,
    /// Whether it belongs to the workspace.
    pub(crate) member: bool,
    /// Names of the packages that it is built with, development dependencies left out.
    pub(crate) dependencies: Vec<String>,
    /// All that its manifest declares.
    pub(crate) declared: Vec<Declared>,
    /// What sources call its library; None: it has none.
    pub(crate) library: Option<String>,
    /// The folder of its manifest.
    pub(crate) folder: PathBuf,
    /// All that is built of it.
    pub(crate) targets: Vec<Target>,
}

/// A library, a program, or a program of its folder `tests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As Cargo calls it.
    pub(crate) name: String,
    /// `lib`, `bin`, `test`, `example`.
    pub(crate) kind: String,
    /// Its first source, below the folder of the package: `src/lib.rs`.
    pub(crate) root: String,
}

/// A dependency as a manifest declares it.
#[derive(Debug)]
pub(crate) struct Declared {
    /// Name of the package.
    pub(crate) name: String,
    /// What it is called here, where that is something else.
    pub(crate) rename: Option<String>,
    /// For tests and examples alone.
    pub(crate) dev: bool,
}

/// All packages that the lock file names.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    parse(&workspace::output_of("cargo", &arguments)?)
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text)?;
    let members = metadata["workspace_members"].as_array().context("no workspace_members")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    Ok(packages.iter().map(|package| read(package, members)).collect())
}

fn read(package: &Value, members: &[Value]) -> Package {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let dependencies = list(&package["dependencies"]);
    let is_dev = |dependency: &Value| dependency["kind"].as_str() == Some("dev");
    let is_library = |target: &&Value| {
        let kinds = list(&target["kind"]);
        kinds.iter().any(|kind| matches!(kind.as_str(), Some("lib" | "rlib" | "proc-macro")))
    };
    let manifest = PathBuf::from(word(&package["manifest_path"]));
    let folder = manifest.parent().map(Path::to_path_buf).unwrap_or_default();
    let target = |target: &Value| {
        let root = PathBuf::from(word(&target["src_path"]));
        let root = root.strip_prefix(&folder).unwrap_or(&root);
        Target {
            name: word(&target["name"]),
            kind: word(&target["kind"][0]),
            root: root.to_string_lossy().into_owned(),
        }
    };
    Package {
        name: word(&package["name"]),
        member: members.contains(&package["id"]),
        dependencies: dependencies
            .iter()
            .filter(|dependency| !is_dev(dependency))
            .map(|dependency| word(&dependency["name"]))
            .collect(),
        declared: dependencies
            .iter()
            .map(|dependency| Declared {
                name: word(&dependency["name"]),
                rename: dependency["rename"].as_str().map(str::to_owned),
                dev: is_dev(dependency),
            })
            .collect(),
        library: list(&package["targets"]).iter().find(is_library).map(|lib| word(&lib["name"])),
        targets: list(&package["targets"]).iter().map(target).collect(),
        folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn development_dependencies_are_left_out() {
        let text = r#"{"workspace_members": ["a 1"], "packages": [
            {"id": "a 1", "name": "a", "dependencies": [
                {"name": "b", "kind": null}, {"name": "c", "kind": "dev"},
                {"name": "d", "kind": "build"}]},
            {"id": "b 2", "name": "b", "dependencies": []}]}"#;
        let packages = parse(text).unwrap();
        assert_eq!(packages[0].dependencies, ["b", "d"]);
        assert!(packages[0].member && !packages[1].member);
    }

    #[test]
    fn a_dependency_keeps_its_name_here_and_a_library_its_own() {
        let text = r#"{"workspace_members": ["a 1"], "packages": [
            {"id": "a 1", "name": "a", "manifest_path": "/x/a/Cargo.toml", "targets": [
                {"kind": ["test"], "name": "mod", "src_path": "/x/a/tests/mod.rs"},
                {"kind": ["lib"], "name": "the_a"}],
             "dependencies": [{"name": "b", "kind": "dev", "rename": "c"}]}]}"#;
        let package = &parse(text).unwrap()[0];
        assert_eq!(package.library.as_deref(), Some("the_a"));
        assert_eq!(package.folder, Path::new("/x/a"));
        let target = &package.targets[0];
        assert_eq!((target.kind.as_str(), target.root.as_str()), ("test", "tests/mod.rs"));
        let declared = &package.declared[0];
        assert_eq!((declared.name.as_str(), declared.dev), ("b", true));
        assert_eq!(declared.rename.as_deref(), Some("c"));
    }
}
