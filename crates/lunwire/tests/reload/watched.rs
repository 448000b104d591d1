// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files beside the configuration that `serve --watch` looks at, where they alone change.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

const OLD: &str = "a secret that is old";
const NEW: &str = "a secret that is new";

/// Has `link` lead to another folder from one moment to the next, as in Kubernetes.
fn lead(link: &Path, folder: &str) {
    let new = link.with_file_name("new link");
    symlink(folder, &new).unwrap();
    std::fs::rename(new, link).unwrap();
}

fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A target whose initiators know the secret in `path`.
fn secured(path: &str) -> String {
    config(&[target("a", &format!("chap-user = \"host\"\nchap-secret-file = \"{path}\"\n"))])
}

impl Daemon {
    fn admits(&self, secret: &str) -> bool {
        let file = self.folder.path().join("shown");
        write_secret(&file, secret);
        let (url, file) = (self.url("a", 0), file.display().to_string());
        let words = ["inspect", &url, "--chap-user", "host", "--chap-secret-file", &file];
        support::lunwire(&words).status.success()
    }

    #[track_caller]
    fn expect_admitted(&self, secret: &str) {
        let begun = Instant::now();
        while !self.admits(secret) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How often the files were read again.
    fn reads(&self) -> usize {
        self.log().matches("the configuration is read again").count()
    }
}

#[test]
fn a_secret_that_alone_changes_takes_effect() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets");
    let put = |version: &str, text: &str| {
        std::fs::create_dir_all(secrets.join(version)).unwrap();
        write_secret(&secrets.join(version).join("host"), text);
        lead(&secrets.join("..data"), version);
    };
    put("..1", OLD);
    symlink("..data/host", secrets.join("host")).unwrap();
    let file = folder.path().join("lunwire.toml");
    std::fs::write(&file, secured("secrets/host")).unwrap();
    let daemon = Daemon::start_with(folder, file, &["--watch"]);
    assert!(daemon.admits(OLD) && !daemon.admits(NEW));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(daemon.reads(), 0, "nothing has changed: {}", daemon.log());
    put("..2", NEW);
    daemon.expect_log("differences=1");
    assert!(daemon.admits(NEW) && !daemon.admits(OLD));
    let told = format!("{} has changed", secrets.join("host").display());
    assert!(daemon.log().contains(&told), "{}", daemon.log());
    // It is written where it is, and its writer takes his time.
    write_secret(&secrets.join("..2/host"), "half");
    daemon.expect_log("not reloaded: ");
    assert!(daemon.admits(NEW), "all is as before: {}", daemon.log());
    std::thread::sleep(Duration::from_millis(2500));
    write_secret(&secrets.join("..2/host"), "half a secret, and its other half");
    daemon.expect_admitted("half a secret, and its other half");
    let log = daemon.log();
    assert_eq!((log.matches("not reloaded").count(), daemon.reads()), (1, 3), "{log}");
}

#[test]
fn a_secret_beside_a_configuration_that_a_link_leads_to_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let put = |version: &str, text: &str| {
        let place = data.with_file_name(version);
        std::fs::create_dir(&place).unwrap();
        write_secret(&place.join("host"), text);
        std::fs::write(place.join("lunwire.toml"), secured("host")).unwrap();
        lead(&data, version);
    };
    put("one", OLD);
    let daemon = Daemon::start_with(folder, data.join("lunwire.toml"), &["--watch"]);
    assert!(daemon.admits(OLD));
    std::thread::sleep(Duration::from_millis(1500));
    put("two", NEW);
    daemon.expect_admitted(NEW);
    assert_eq!(daemon.reads(), 1, "{}", daemon.log());
}

/// Its writer may never come, and orders and a take-over would wait for that.
#[test]
fn a_pipe_in_the_place_of_a_secret_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    write_secret(&secret, OLD);
    let file = folder.path().join("lunwire.toml");
    std::fs::write(&file, secured("secret")).unwrap();
    let daemon = Daemon::start_with(folder, file, &["--watch"]);
    std::fs::remove_file(&secret).unwrap();
    let made = Command::new("mkfifo").arg(&secret).status().unwrap();
    assert!(made.success());
    daemon.expect_log("it is a pipe");
    assert!(daemon.admits(OLD), "all is as before: {}", daemon.log());
    write_secret(&secret.with_file_name("new"), NEW);
    std::fs::rename(secret.with_file_name("new"), &secret).unwrap();
    daemon.expect_admitted(NEW);
}

/// What is refused is not read again until something changes, and that is another file here.
#[test]
fn a_secret_that_was_refused_with_its_configuration_comes_when_that_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    write_secret(&secret, OLD);
    let file = folder.path().join("lunwire.toml");
    let text = secured("secret");
    std::fs::write(&file, &text).unwrap();
    let daemon = Daemon::start_with(folder, file, &["--watch"]);
    daemon.write(&format!("reactors = 7\n{text}"));
    write_secret(&secret, NEW);
    daemon.expect_log(&format!("{} has changed", secret.display()));
    std::thread::sleep(Duration::from_secs(1));
    assert!(daemon.admits(OLD) && !daemon.admits(NEW), "it is refused: {}", daemon.log());
    daemon.write(&text);
    daemon.expect_admitted(NEW);
}
