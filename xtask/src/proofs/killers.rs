// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which program has a test that a tag names by its file and its function.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::metadata::Package;
use crate::metadata::Target;
use crate::proofs::build::Binary;
use crate::proofs::build::Wanted;
use crate::workspace;

/// A test as it is run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    /// Where it runs.
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    /// With its modules.
    pub(crate) name: String,
}

/// A test as a tag names it: `crates/iscsi/src/window.rs: the_window_never_shrinks`.
pub(crate) fn file_and_name(test: &str) -> Option<(&str, &str)> {
    test.split_once(": ").filter(|(file, _)| file.ends_with(".rs"))
}

/// The programs that can have the tests of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    package: String,
    /// Below the workspace.
    folder: String,
    targets: Vec<Target>,
}

/// Where the tests of a file are.
pub(crate) fn home_of(file: &str, packages: &[Package]) -> Option<Home> {
    let of_file = |package: &&Package| {
        let folder = below_root(package);
        package.member && !folder.is_empty() && file.starts_with(&format!("{folder}/"))
    };
    let package = packages.iter().find(of_file)?;
    let folder = below_root(package);
    let below = file.strip_prefix(&format!("{folder}/"))?;
    let targets = package.targets.iter();
    let targets: Vec<Target> = match below.strip_prefix("tests/") {
        None => targets.filter(|one| matches!(one.kind.as_str(), "lib" | "bin")).cloned().collect(),
        Some(inner) => {
            let tests: Vec<&Target> = targets.filter(|one| one.kind == "test").collect();
            let folder = inner.split('/').next().map(|first| format!("tests/{first}/main.rs"));
            let own =
                tests.iter().find(|one| one.root == below || Some(&one.root) == folder.as_ref());
            match own {
                Some(own) => vec![(*own).clone()],
                None => {
                    let path =
                        format!("{}/", workspace::root().join(&*below_root(package)).display());
                    tests.into_iter().filter(|one| declares(&path, one, inner)).cloned().collect()
                }
            }
        }
    };
    (!targets.is_empty()).then(|| Home { package: package.name.clone(), folder, targets })
}

/// Whether a program names the module that a file below its folder is, or is part of.
fn declares(folder: &str, target: &Target, inner: &str) -> bool {
    let module = inner.split(['/', '.']).next().unwrap_or_default();
    let text = std::fs::read_to_string(format!("{folder}{}", target.root)).unwrap_or_default();
    text.lines().any(|line| line.trim() == format!("mod {module};"))
}

fn below_root(package: &Package) -> String {
    let below = package.folder.strip_prefix(workspace::root());
    below.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Wanted {
    /// With the programs of this home.
    pub(crate) fn add(&mut self, home: &Home) {
        self.packages.insert(home.package.clone());
        self.targets.extend(home.targets.iter().map(|target| match target.kind.as_str() {
            "lib" => "--lib".to_owned(),
            "bin" => "--bins".to_owned(),
            _ => format!("--test={}", target.name),
        }));
    }
}

/// Modules that a test has in common with a file, and how many others it has: few are best.
type Closeness = (usize, Reverse<usize>);

/// The tests of all programs that were built.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    /// By the first source of the program.
    programs: BTreeMap<String, (Binary, Vec<String>)>,
}

impl Tests {
    pub(crate) fn list(binaries: Vec<Binary>, homes: &[&Home]) -> Result<Self> {
        let wanted: BTreeSet<String> = homes.iter().flat_map(|home| home.roots()).collect();
        let mut programs = BTreeMap::new();
        for binary in binaries.into_iter().filter(|binary| wanted.contains(&binary.root)) {
            let output = Command::new(&binary.program)
                .arg("--list")
                .current_dir(&binary.folder)
                .output()
                .with_context(|| binary.program.display().to_string())?;
            let text = String::from_utf8(output.stdout)?;
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            let names = names.map(str::to_owned).collect();
            programs.insert(binary.root.clone(), (binary, names));
        }
        Ok(Self { programs })
    }

    /// The test with this name of this file.
    pub(crate) fn find(&self, home: &Home, file: &str, name: &str) -> Result<Test> {
        // The most modules in common; of these the fewest others, as of files below this one.
        let mut best: Option<(Closeness, Vec<Test>)> = None;
        for root in home.roots() {
            let Some((binary, names)) = self.programs.get(&root) else { continue };
            let modules = modules_of(file, &root);
            for full in names.iter().filter(|full| full.rsplit("::").next() == Some(name)) {
                let equal = full.split("::").zip(&modules).take_while(|(a, b)| a == b).count();
                let close = (equal, Reverse(full.split("::").count() - equal));
                let (folder, program) = (binary.folder.clone(), binary.program.clone());
                let test = Test { folder, program, name: full.clone() };
                match &mut best {
                    Some((most, tests)) if close == *most => tests.push(test),
                    Some((most, _)) if close < *most => {}
                    _ => best = Some((close, vec![test])),
                }
            }
        }
        let tests = best.map_or_else(Vec::new, |(_, tests)| tests);
        match <[Test; 1]>::try_from(tests) {
            Ok([test]) => Ok(test),
            Err(none) if none.is_empty() => bail!("no program has the test {file}: {name}"),
            Err(several) => {
                let names: Vec<&str> = several.iter().map(|test| test.name.as_str()).collect();
                bail!("{file}: {name} may be each of {}", names.join(", "))
            }
        }
    }
}

impl Home {
    /// The first sources of its programs, below the workspace.
    fn roots(&self) -> impl Iterator<Item = String> {
        self.targets.iter().map(|target| format!("{}/{}", self.folder, target.root))
    }
}

/// `session`, `tests`, `recovery` of `crates/iscsi/src/session/tests/recovery.rs`.
fn modules_of(file: &str, root: &str) -> Vec<String> {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let below = file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/');
    let below = below.strip_suffix(".rs").unwrap_or(below);
    let modules = below.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
    modules.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        let target = |(kind, name, root): &(&str, &str, &str)| Target {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            root: (*root).to_owned(),
        };
        let targets = [
            ("lib", "a", "src/lib.rs"),
            ("test", "login", "tests/login/main.rs"),
            ("test", "single", "tests/single.rs"),
        ];
        Package {
            name: "a-package".to_owned(),
            member: true,
            dependencies: Vec::new(),
            declared: Vec::new(),
            library: None,
            folder: workspace::root().join("crates/a"),
            targets: targets.iter().map(target).collect(),
        }
    }

    #[test]
    fn files_are_of_programs() {
        let roots = |file: &str| {
            let home = home_of(file, &[package()])?;
            Some(home.roots().collect::<Vec<_>>())
        };
        assert_eq!(roots("crates/a/src/x/y.rs").unwrap(), ["crates/a/src/lib.rs"]);
        assert_eq!(
            roots("crates/a/tests/login/names.rs").unwrap(),
            ["crates/a/tests/login/main.rs"]
        );
        assert_eq!(roots("crates/a/tests/single.rs").unwrap(), ["crates/a/tests/single.rs"]);
        assert_eq!(roots("crates/a/tests/other.rs"), None);
        assert_eq!(roots("crates/ab/src/lib.rs"), None);
        let mut wanted = Wanted::default();
        wanted.add(&home_of("crates/a/tests/single.rs", &[package()]).unwrap());
        wanted.add(&home_of("crates/a/src/lib.rs", &[package()]).unwrap());
        assert!(wanted.targets.iter().eq(["--lib", "--test=single"]));
    }

    #[test]
    fn of_tests_with_one_name_the_module_decides() {
        let home = home_of("crates/a/src/x/y.rs", &[package()]).unwrap();
        let binary = Binary {
            root: "crates/a/src/lib.rs".to_owned(),
            folder: PathBuf::new(),
            program: PathBuf::new(),
        };
        let names = [
            "x::y::a::tests::works",
            "x::z::tests::works",
            "x::y::tests::works",
            "x::y::tests::works_not",
            "x::y::z::tests::twice",
            "x::y::a::tests::twice",
        ];
        let names = names.map(str::to_owned).to_vec();
        let root = binary.root.clone();
        let tests = Tests { programs: BTreeMap::from([(root, (binary, names))]) };
        let found = |file: &str, name: &str| tests.find(&home, file, name).map(|test| test.name);
        assert_eq!(found("crates/a/src/x/y.rs", "works").unwrap(), "x::y::tests::works");
        assert_eq!(found("crates/a/src/x/z.rs", "works").unwrap(), "x::z::tests::works");
        assert_eq!(found("crates/a/src/x/y/a.rs", "works").unwrap(), "x::y::a::tests::works");
        assert_eq!(found("crates/a/src/x/y/a.rs", "twice").unwrap(), "x::y::a::tests::twice");
        assert!(found("crates/a/src/x/y.rs", "work").is_err());
        assert!(found("crates/a/src/x/y.rs", "twice").is_err(), "it may be either");
        assert_eq!(modules_of("crates/a/tests/suite.rs", "crates/a/tests/suite.rs"), ["suite"]);
        assert_eq!(modules_of("crates/a/src/x/mod.rs", "crates/a/src/lib.rs"), ["x"]);
    }
}
