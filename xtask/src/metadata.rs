// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `cargo metadata` says, reduced to what the tasks need.

use crate::workspace;
use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

/// A package of the build, ours or foreign.
#[derive(Debug)]
pub(crate) struct Package {
    /// Name in its manifest.
    pub(crate) name: String,
    /// Whether it belongs to the workspace.
    pub(crate) member: bool,
    /// Names of the packages that it is built with, development dependencies left out.
    pub(crate) dependencies: Vec<String>,
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
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    Package {
        name: word(&package["name"]),
        member: members.contains(&package["id"]),
        dependencies: dependencies
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .map(|dependency| word(&dependency["name"]))
            .collect(),
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
}
